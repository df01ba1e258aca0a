"""Snapshot messages from somebody who wants to harm: each is a FormatError, and costs no more than it may."""

from __future__ import annotations

import copy
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import pytest
import zstandard

from sfd_stream.errors import FormatError
from sfd_stream.wire import snapshots
from sfd_stream.wire.snapshot_ids import EPOCH_MAX, NUMBER_MAX, PARTITIONS_MAX, SnapshotId
from sfd_stream.wire.snapshots import decode_message, decode_snapshot, encode_reference, encode_snapshot, message_of
from tests.unit.wire.test_snapshots import ID, MERGED, REFERENCE, SKETCH, SNAPSHOT, pressed, resealed

# -- sizes ---------------------------------------------------------------------------------------------------


def zeros(count: int) -> bytes:
    """`count` zero bytes, compressed piece by piece."""
    press = zstandard.ZstdCompressor(level=1).compressobj(size=count)
    piece = b"\0" * min(count, 1 << 24)
    return b"".join([*(press.compress(piece) for _ in range(count // len(piece))), press.flush()])


def empty_frame_of(count: int) -> bytes:
    """A zstd frame that declares `count` bytes and holds none: a magic number, a descriptor, the size, one block."""
    return b"\x28\xb5\x2f\xfd\xe0" + count.to_bytes(8, "little") + b"\x01\x00\x00"


@pytest.mark.parametrize(
    "changes",
    [
        {"d": 2**22, "ell": 100, "matrix_rows": 100, "matrix": empty_frame_of(100 * 2**22 * 8), "column_sums": None},
        {"d": 2**31, "ell": 2**20, "matrix_rows": 2**20, "matrix": empty_frame_of(2**54), "column_sums": None},
        {"d": 2**31, "matrix_rows": 0, "matrix": pressed(b""), "column_sums": empty_frame_of(2**34)},
        {"d": 2**31, "matrix_rows": 0, "matrix": pressed(b""), "column_sums": None, "names": None},
        {"names": empty_frame_of(2**40)},
        {"matrix": empty_frame_of(48)},
    ],
    ids=["3.2 GB", "2^54 bytes", "sums", "columns alone", "names", "less than declared"],
)
def test_a_declared_size_is_checked_before_anything_is_allocated(changes: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        decode_snapshot(resealed(**changes))


def test_a_matrix_has_at_most_ell_rows() -> None:
    with pytest.raises(FormatError, match=r"3 rows.*ell = 2"):
        decode_snapshot(resealed(matrix_rows=3, matrix=pressed(np.zeros(9).tobytes())))


def test_the_limit_is_the_reader_s_to_set() -> None:
    wide = replace(SNAPSHOT, sketch=replace(SKETCH, matrix=np.ones((2, 1000)), column_sums=None), names={})
    encoded = encode_snapshot(wide)
    assert decode_snapshot(encoded, max_bytes=20_000).sketch.d == 1000
    with pytest.raises(FormatError, match=r"needs 16,000 bytes .* 10,000 .*max_snapshot_bytes"):
        decode_snapshot(encoded, max_bytes=10_000)


def test_a_small_message_can_not_take_the_memory() -> None:
    """The 3.4 GB that it declares, in a process that may have 3."""
    code = """
import resource, sys
from sfd_stream.errors import FormatError
from sfd_stream.wire.snapshots import decode_message
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
try:
    decode_message(sys.stdin.buffer.read())
except FormatError as error:
    print("refused:", error)
"""
    bomb = resealed(d=2**22, ell=100, matrix_rows=100, matrix=zeros(100 * 2**22 * 8), column_sums=None, names=None)
    assert len(bomb) < 2**20
    done = subprocess.run([sys.executable, "-c", code], input=bomb, capture_output=True, check=False)
    assert done.stdout.startswith(b"refused:"), done.stderr.decode()[-500:]


@pytest.mark.parametrize(
    "raw",
    [
        msgpack.packb([[0] * 4, ["x"] * 4]),
        b"\x92" + b"\xdd\x00\x00\x00\x03" + b"\x00\x01\x02" + b"\xdd\x00\x00\x00\x03" + b"\x90" * 3,
        b"\x92\x91\x00\x91" + b"\x91" * 400 + b"\x90",
        b"\x92" + b"\xdd\x7f\xff\xff\xff" * 400,
        b"\x93\x90\x90\x90",
        b"\x92\xc0\x90",
        b"\x92\x80\x80",
        b"\x92",
        b"",
        b"\x90",
    ],
    ids=["more than columns", "lists", "deep", "long and deep", "three", "nil", "maps", "cut", "empty", "none"],
)
def test_names_that_are_no_names(raw: bytes) -> None:
    with pytest.raises(FormatError):
        decode_snapshot(resealed(names=pressed(raw)))


def test_names_count_towards_the_limit() -> None:
    many = dict.fromkeys(range(3), "x")
    encoded = encode_snapshot(replace(SNAPSHOT, names=many))
    with pytest.raises(FormatError, match="names"):
        decode_snapshot(encoded, max_bytes=100)


# -- numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"partitions": 10**7},
        {"partitions": 2**40},
        {"partitions": PARTITIONS_MAX + 1},
        {"dtype": ["float64"]},
        {"dtype": {"float64": 1}},
        {"columns": ["hashed"]},
        {"hash_seed": -1},
        {"hash_seed": 2**32},
        {"failure_probability": 2.0},
        {"ell": 2**40},
        {"matrix": pressed(np.full(6, 1e200).tobytes())},
        {"column_sums": pressed(np.full(3, 1e200).tobytes())},
        {"weight": 0.0},
        {"weight": 1e-300},
        {"id": ID.as_map() | {"epoch": EPOCH_MAX + 1}},
        {"id": ID.as_map() | {"number": NUMBER_MAX + 1}},
        {"id": ID.as_map() | {"epoch": 2**63}},
        {"id": ID.as_map() | {"epoch": -1}},
        {"id": ID.as_map() | {"partition": -1}},
        {"id": ID.as_map() | {"partition": 2**31}},
        {"id": ID.as_map() | {"group": "g" * 2000}},
        {"id": {name: value for name, value in ID.as_map().items() if name != "cluster"}},
        {"id": {name: value for name, value in ID.as_map().items() if name != "window"}},
        *(
            {"parts": [MERGED.merged_from[0].as_map() | changed]}
            for changed in ({"partitions": 2**40}, {"rows": -1}, {"made_at_s": float("nan")}, {"next_offset": -1})
        ),
    ],
    ids=lambda changes: f"{changes!s:.60}",
)
def test_what_no_worker_writes_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        decode_snapshot(resealed(**changes))


@pytest.mark.parametrize("changes", [{"size": -1}, {"size": 2**63}, {"checksum": b"short"}, {"store": "s" * 10_000}])
def test_a_reference_that_no_worker_writes_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        decode_message(encode_reference(REFERENCE._replace(**changes)))


# -- a fuzzer ------------------------------------------------------------------------------------------------

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 2**31, 2**32, 2**53, 2**63, 2**64 - 1, -(2**63)),
    *(0.0, -0.0, 1.5, -1.5, 1e308, float("nan"), float("inf"), -float("inf")),
    *("", "x", "float64", "float32", "hashed", "fixed", "\x1b[31m", "x" * 5000, "\u202e", "../../etc"),
    *(b"", b"\0", b"\x28\xb5\x2f\xfd", pressed(b""), pressed(b"\0" * 8), pressed(b"\0" * 24), pressed(b"\0" * 48)),
    *(pressed(b"\xc1"), pressed(b"\x92\x90\x90"), pressed(b"\x92\x91\x00\x91\xa1x"), empty_frame_of(48)),
    *([], [0], [[]], [{}], [None] * 3, {}, {"id": {}}, {0: 0}, {"": None}, {b"x": [1]}),
)


def places(found: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something is in a body: the keys and indices that lead to it."""
    inner = found.items() if isinstance(found, Mapping) else enumerate(found) if isinstance(found, list) else ()
    for name, value in inner:
        yield (*path, name)
        yield from places(value, (*path, name))


def mutated(body: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The body with one to three things replaced, removed, added, or with a byte of theirs changed."""
    changed: dict[str, Any] = msgpack.unpackb(msgpack.packb(body), strict_map_key=False)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        *way, last = chance.choice(list(places(changed)))
        holder: Any = changed
        for name in way:
            holder = holder[name]
        value, act = holder[last], chance.random()
        if act < 0.15:
            del holder[last]
        elif act < 0.3 and isinstance(value, bytes) and value:
            at = chance.randrange(len(value))
            holder[last] = value[:at] + bytes([chance.randrange(256)]) + value[at + 1 :]
        elif act < 0.4 and isinstance(value, int):
            holder[last] = max(value + chance.choice([-1, 1, 2**31, -(2**31)]), -(2**63))
        elif act < 0.5 and isinstance(holder, dict):
            holder[chance.choice(["", "id", "d", 7])] = copy.deepcopy(chance.choice(ODD))
        else:
            holder[last] = copy.deepcopy(chance.choice(ODD))
        if not changed:
            break
    return changed


BODIES = {
    ("sfd-snapshot", "partition"): encode_snapshot(SNAPSHOT),
    ("sfd-snapshot", "merge"): encode_snapshot(MERGED),
    ("sfd-reference", "reference"): encode_reference(REFERENCE),
}


def fuzz(seed: int, count: int) -> dict[str, int]:
    """How often a sealed mutation was read and how often refused; any other error is raised."""
    chance, seen = random.Random(seed), {"read": 0, "refused": 0}
    choices = [(schema, msgpack.unpackb(msgpack.unpackb(data)["body"])) for (schema, _), data in BODIES.items()]
    for _ in range(count):
        schema, body = chance.choice(choices)
        made = mutated(body, chance)
        try:
            value = snapshots._seal(schema, made)
        except (OverflowError, ValueError):  # msgpack has no such number
            continue
        try:
            found = decode_message(value)
            message_of(value)
        except FormatError:
            seen["refused"] += 1
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}, of {made!r:.2000}") from error
        else:
            assert SnapshotId.from_headers(found.id.headers("x")) == found.id
            seen["read"] += 1
    return seen


@pytest.mark.parametrize("seed", range(4))
def test_a_sealed_mutation_is_read_or_is_a_format_error(seed: int) -> None:
    seen = fuzz(seed, 3000)
    assert min(seen.values()) > 100, seen


@pytest.mark.parametrize("seed", range(2))
def test_bytes_of_any_kind_are_a_format_error(seed: int) -> None:
    """Sealed by hand, so that the checksum does not stop them: the body is no map, or msgpack's odd corners."""
    chance = random.Random(seed)
    for _ in range(2000):
        body = chance.randbytes(chance.randrange(40))
        for schema in ("sfd-snapshot", "sfd-reference"):
            head = snapshots._head(schema, 1, snapshots._sum_of(schema, 1, body), len(body))
            with pytest.raises(FormatError):
                decode_message(head + body)
