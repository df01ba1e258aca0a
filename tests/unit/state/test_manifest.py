"""A manifest comes back whole or is an error, and each one in a chain follows the one before it by the law."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgpack
import pytest

from sfd_stream.errors import FormatError
from sfd_stream.state.manifest import (
    Binding,
    BlobRef,
    Kind,
    Manifest,
    SnapshotRef,
    StateId,
    breaches,
    decode_manifest,
    encode_manifest,
)
from sfd_stream.wire.frames import decode_frame, encode_map
from tests.unit.state.chains import BINDING, Memory, genesis, grown

MANIFEST = Manifest(
    number=41,
    epoch=7,
    nonce="c0ffee",
    parent="decaf",
    kind=Kind.CHECKPOINT,
    binding=Binding("cluster", None, "group", "rows", 3),
    next_offset=2**40,
    leader_epoch=None,
    sketch=BlobRef("p/blobs/00000000000000000040-7-aa-sketch", 100, bytes(range(16))),
    buffer=(BlobRef("p/blobs/00000000000000000041-7-c0ffee-buffer-0", 7, b"\xff" * 16),),
    counters={"rows": 12, "squared_frobenius": 0.1 + 0.2},
    parameters={"ell": 50, "columns": "hashed", "hash_seed": None},
    state_id=StateId(7, 41),
    due=SnapshotRef(StateId(7, 41), BlobRef("p/blobs/00000000000000000041-7-c0ffee-snapshot", 9, b"\x01" * 16)),
    published=None,
    written_at_s=1700000000.25,
)


def test_manifests_come_back_whole() -> None:
    assert decode_manifest(encode_manifest(MANIFEST)) == MANIFEST
    assert decode_manifest(encode_manifest(MANIFEST)).written_at_s == MANIFEST.written_at_s


@pytest.mark.parametrize(
    "change",
    [
        {"number": "1"},
        {"nonce": None},
        {"kind": "coup"},
        {"binding": {"group": "g"}},
        {"sketch": ["key", 1]},
        {"buffer": [None]},
        {"due": [1, 2]},
        {"state_id": [1]},
        {"counters": None},
        {"surplus": 1},
        {"written_at_s": None},
        {"state_id": None},
        {"buffer": None},
        {"next_offset": -1001},
        {"next_offset": -1},
    ],
)
def test_a_manifest_that_misstates_a_field_is_a_format_error(change: dict[str, Any]) -> None:
    fields = msgpack.unpackb(decode_frame(encode_manifest(MANIFEST)))
    with pytest.raises(FormatError):
        decode_manifest(encode_map("manifest", fields | change))
    with pytest.raises(FormatError):
        decode_manifest(encode_map("manifest", {k: v for k, v in fields.items() if k not in change} | {"x": 1}))


def test_a_manifest_with_a_negative_offset_is_not_written() -> None:
    """The client reports -1001 for an offset that it does not know."""
    with pytest.raises(FormatError, match="next_offset -1001"):
        encode_manifest(replace(MANIFEST, next_offset=-1001))


def test_a_snapshot_is_owed_until_it_is_acknowledged() -> None:
    memory = Memory()
    first = genesis()
    assert first.has_pending_snapshot(None)
    manifest = grown(memory, states=2)[-1]
    assert manifest.due is not None
    assert manifest.unpublished == manifest.due
    assert manifest.has_pending_snapshot(None)
    assert not manifest.has_pending_snapshot(manifest.due)
    older = SnapshotRef(StateId(1, 1), manifest.due.blob)
    assert manifest.has_pending_snapshot(older)
    assert replace(manifest, published=manifest.due).unpublished is None


@pytest.mark.parametrize(
    "change",
    [
        {"number": 9},
        {"parent": "other"},
        {"epoch": 2},
        {"binding": replace(BINDING, topic_id="x")},
        {"state_id": StateId(1, 1)},
        {"next_offset": 0},
        {"due": None},
        {"kind": "claim"},
        {"kind": "genesis"},
        {"kind": "reset"},
    ],
)
def test_the_chain_s_law_sees_each_breach(change: dict[str, Any]) -> None:
    chain = grown(Memory(), states=3)
    if "kind" in change:
        change = {"kind": type(chain[0].kind)(change["kind"])}
    assert breaches(chain[1], chain[2]) == []
    assert breaches(chain[1], replace(chain[2], **change))
