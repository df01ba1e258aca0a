"""Frames and arrays: bit for bit what was written, and an error for every damage."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sfd_stream.errors import ChecksumError, FormatError, NewerFormatError
from sfd_stream.state.manifest import decode_manifest, encode_manifest
from sfd_stream.wire import frames
from sfd_stream.wire.frames import decode_arrays, decode_frame, encode_arrays, encode_frame
from tests.unit.state.test_manifest import MANIFEST

GOLDEN = Path(__file__).parent / "golden"
DTYPES = ["?", "u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f4", "<f8"]

NUMBERS: dict[str, Any] = {"rows": 2**63, "delta": 0.1, "name": "é", "none": None, "nested": {"a": [1, -2.5]}}
ARRAYS: dict[str, npt.NDArray[Any]] = {
    "B": np.array([[1.5, -0.0, 5e-324], [np.inf, 2.0**-1074, -1e300]]),
    "indices": np.array([3, 1, 4, 1, 5], dtype=np.uint32),
    "empty": np.zeros((0, 7), dtype=np.float32),
    "flags": np.array([True, False]),
}


def same_bits(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# -- round trips -----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(DTYPES).flatmap(
            lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
        ),
        max_size=4,
    )
)
def test_arrays_come_back_bit_for_bit_and_fit_for_blas(arrays: list[npt.NDArray[Any]]) -> None:
    named = {f"a{i}": array for i, array in enumerate(arrays)}
    back = decode_arrays(encode_arrays("sketch", NUMBERS, named), kind="sketch")
    assert back.numbers == NUMBERS
    assert list(back.arrays) == list(named)
    for name, array in named.items():
        fresh = back.arrays[name]
        assert same_bits(array, fresh)
        assert fresh.flags.c_contiguous
        assert fresh.flags.writeable
        assert fresh.dtype.isnative
        assert fresh.ctypes.data % 64 == 0 or not fresh.size


def test_layout_and_byte_order_of_what_is_given_do_not_matter() -> None:
    wanted = np.arange(12.0).reshape(3, 4)
    for given_ in (np.asfortranarray(wanted), wanted.astype(">f8"), np.repeat(wanted, 2, axis=1)[:, ::2]):
        assert same_bits(decode_arrays(encode_arrays("sketch", {}, {"x": given_})).arrays["x"], wanted)


def test_the_bits_of_nan_are_kept() -> None:
    strange = np.array([0x7FF8000000000001, 0xFFF0000000000002], dtype=np.uint64).view(np.float64)
    assert same_bits(decode_arrays(encode_arrays("sketch", {}, {"x": strange})).arrays["x"], strange)


def test_what_decodes_shares_no_memory_with_the_bytes() -> None:
    data = encode_arrays("sketch", {}, ARRAYS)
    back = decode_arrays(data)
    back.arrays["B"][:] = 0
    assert same_bits(decode_arrays(data).arrays["B"], ARRAYS["B"])


@pytest.mark.parametrize("bad", [np.array(["a"]), np.array([object()]), np.array([1j]), np.zeros(1, "f2")])
def test_only_plain_numbers_are_written(bad: npt.NDArray[Any]) -> None:
    with pytest.raises(TypeError, match="which checkpoints do not hold"):
        encode_arrays("sketch", {}, {"x": bad})


# -- damage ----------------------------------------------------------------------------------------------

BLOB = encode_arrays("sketch", {"rows": 3}, {"x": np.arange(3.0)})


@pytest.mark.parametrize("data", [BLOB, encode_manifest(MANIFEST)], ids=["arrays", "manifest"])
def test_every_flipped_byte_and_every_other_length_is_seen(data: bytes) -> None:
    for position in range(len(data)):
        for flip in (1, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[position] ^= flip
            with pytest.raises((ChecksumError, FormatError)) as caught:
                decode_frame(bytes(damaged))
            assert not isinstance(caught.value, NewerFormatError)
    for wrong in (*(data[:length] for length in range(len(data))), data + b"\0", data + data):
        with pytest.raises(FormatError):
            decode_frame(wrong)


def test_a_newer_program_s_work_is_told_from_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "VERSION", 2)
    newer = encode_manifest(MANIFEST)
    monkeypatch.undo()
    with pytest.raises(NewerFormatError, match="version 2"):
        decode_manifest(newer)
    monkeypatch.setattr(frames, "VERSION", 0)
    older = encode_manifest(MANIFEST)
    monkeypatch.undo()
    with pytest.raises(FormatError):
        decode_manifest(older)


def test_one_kind_is_not_taken_for_another() -> None:
    with pytest.raises(FormatError, match="'sketch'"):
        decode_manifest(BLOB)
    with pytest.raises(FormatError, match="'manifest'"):
        decode_arrays(encode_manifest(MANIFEST), kind="sketch")


def framed(header: Any, region: bytes = b"", *, length: int | None = None) -> bytes:
    packed = msgpack.packb(header)
    front = struct.pack("<Q", len(packed) if length is None else length) + packed
    return encode_frame("sketch", front + b"\0" * (-len(front) % 64) + region)


@pytest.mark.parametrize(
    "data",
    [
        encode_frame("sketch"),
        encode_frame("sketch", b"1234567"),
        framed({}),
        framed([]),
        framed({"numbers": 1, "arrays": []}),
        framed({"numbers": {}, "arrays": [["x", "<f8", [1], 0]]}),
        framed({"numbers": {}, "arrays": [["x", "<f8", [2**62, 2**62], 0]]}, b"12345678"),
        framed({"numbers": {}, "arrays": [["x", "<f8", [-1], 0]]}, b"12345678"),
        framed({"numbers": {}, "arrays": [["x", "<f8", [1], 8]]}, b"12345678" * 2),
        framed({"numbers": {}, "arrays": [["x", "|O", [1], 0]]}, b"12345678"),
        framed({"numbers": {}, "arrays": [["x", "<f8", [True], 0]]}, b"12345678"),
        framed({"numbers": {}, "arrays": [["x", "<f8", [1]]]}, b"12345678"),
        framed({"numbers": {}, "arrays": []}, b"rest"),
        framed({"numbers": {}, "arrays": []}, length=2**60),
        framed({"numbers": {"t": msgpack.ExtType(5, b"x")}, "arrays": []}),
    ],
)
def test_a_well_framed_lie_is_a_format_error(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_arrays(data)


# -- version 1, for ever ---------------------------------------------------------------------------------


def test_version_1_is_written_as_it_always_was() -> None:
    assert encode_manifest(MANIFEST) == (GOLDEN / "manifest-1.bin").read_bytes()
    assert encode_arrays("sketch", NUMBERS, ARRAYS) == (GOLDEN / "arrays-1.bin").read_bytes()


def test_version_1_is_read() -> None:
    assert decode_manifest((GOLDEN / "manifest-1.bin").read_bytes()) == MANIFEST
    back = decode_arrays((GOLDEN / "arrays-1.bin").read_bytes())
    assert back.numbers == NUMBERS
    assert all(same_bits(back.arrays[name], array) for name, array in ARRAYS.items())


def payload_by_the_page(data: bytes) -> tuple[str, bytes]:
    """The frame as docs/reference/formats.md tells it, with nothing of ours."""
    assert data[:8] == bytes.fromhex("89534644430d0a1a")
    assert struct.unpack_from("<I", data, 8) == (1,)
    assert data[12:16] == b"\0" * 4
    (length,) = struct.unpack_from("<Q", data, 32)
    assert len(data) == 64 + length
    assert data[40:48] == b"\0" * 8
    assert hashlib.sha256(data[:48] + data[64:]).digest()[:16] == data[48:64]
    return data[16:32].rstrip(b"\0").decode(), data[64:]


def test_the_page_is_enough_to_read_arrays() -> None:
    kind, payload = payload_by_the_page((GOLDEN / "arrays-1.bin").read_bytes())
    (length,) = struct.unpack_from("<Q", payload)
    header = msgpack.unpackb(payload[8 : 8 + length])
    region = payload[-(-(8 + length) // 64) * 64 :]
    assert kind == "sketch"
    assert header["numbers"]["rows"] == 2**63
    places = {name: (dtype, shape, start) for name, dtype, shape, start in header["arrays"]}
    assert places["indices"] == ("<u4", [5], 64)
    assert struct.unpack_from("<5I", region, 64) == (3, 1, 4, 1, 5)
    assert struct.unpack_from("<6d", region, 0) == (1.5, -0.0, 5e-324, float("inf"), 2.0**-1074, -1e300)
    assert places["flags"] == ("|b1", [2], 128)
    assert region[128:] == b"\x01\x00"


def test_the_page_is_enough_to_read_a_manifest() -> None:
    kind, payload = payload_by_the_page((GOLDEN / "manifest-1.bin").read_bytes())
    fields = msgpack.unpackb(payload)
    assert kind == "manifest"
    assert (fields["number"], fields["epoch"], fields["next_offset"]) == (41, 7, 2**40)
    assert fields["counters"] == {"rows": 12, "squared_frobenius": 0.30000000000000004}
    assert fields["sketch"] == ["p/blobs/00000000000000000040-7-aa-sketch", 100, bytes(range(16))]
    assert fields["due"][:2] == fields["state_id"] == [7, 41]
    page = (Path(__file__).parents[3] / "docs" / "reference" / "formats.md").read_text()
    assert all(f"| `{name}` |" in page for name in fields)
