"""Taking a partition over: what is refused, before any claim, and by which words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgpack
import pytest

from sfd_stream.errors import FormatError, RefusedStateError
from sfd_stream.state.claim import LOG_TRIES, Claimed, Wish, assign, judge_log
from sfd_stream.state.manifest import Kind, StateId, encode_manifest, manifest_key
from sfd_stream.state.protocol import check_binding
from sfd_stream.state.steps import AskCommitted, AskLog, AskOutputEpoch, LogFacts, Refused
from sfd_stream.wire.frames import decode_frame, encode_map
from sfd_stream.wire.snapshot_ids import EPOCH_MAX, EPOCH_TAKEN_MAX
from tests.unit.state.chains import BINDING, PREFIX, Memory, genesis, grown


def wish(**changes: Any) -> Wish[Any]:
    right = Wish(
        PREFIX,
        BINDING,
        {"ell": 4, "d": 10, "columns": "fixed"},
        "earliest",
        lambda _, sketch, buffer: (sketch, buffer),
        (f"nonce{i}" for i in range(99)),
        1.0,
    )
    return replace(right, **changes)


def test_a_first_owner_begins_at_slot_one_with_the_start_pinned() -> None:
    for start, offset in (("earliest", 3), ("latest", 9)):
        memory = Memory(log=LogFacts(3, 9, 5))
        outcome = memory.run(assign(wish(start=start)))
        assert isinstance(outcome, Claimed)
        manifest = outcome.manifest
        assert (manifest.number, manifest.epoch, manifest.kind) == (1, 1, Kind.GENESIS)
        assert (manifest.next_offset, manifest.leader_epoch) == (offset, 5)
        assert memory.objects == {manifest_key(PREFIX, 1): encode_manifest(manifest)}


def test_a_checkpoint_at_a_negative_offset_is_refused_with_a_remedy_that_loses_no_rows() -> None:
    memory = Memory(log=LogFacts(0, 100))
    newest = grown(memory, states=1)[-1]
    good = encode_manifest(newest)
    fields = msgpack.unpackb(decode_frame(good))
    memory.objects[manifest_key(PREFIX, newest.number)] = encode_map("manifest", fields | {"next_offset": -1001})
    outcome = memory.run(assign(wish()))
    assert isinstance(outcome, Refused)
    assert "next_offset -1001" in outcome.why
    assert "rollback" in outcome.remedy
    assert "latest" not in outcome.remedy


def test_a_new_life_begins_above_every_epoch_that_readers_saw() -> None:
    memory = Memory(output_epoch=41)
    outcome = memory.run(assign(wish()))
    assert outcome.manifest.state_id == StateId(42, 1)


def test_a_claim_raises_the_epoch_and_copies_all_else() -> None:
    memory = Memory(log=LogFacts(0, 100))
    newest = grown(memory, states=3)[-1]
    outcome = memory.run(assign(wish()))
    claim = outcome.manifest
    assert claim == replace(
        newest,
        number=newest.number + 1,
        epoch=newest.epoch + 1,
        nonce="nonce0",
        parent=newest.nonce,
        kind=Kind.CLAIM,
    )
    assert outcome.state == (memory.objects[newest.sketch.key], ())
    assert outcome.unpublished == memory.objects[newest.due.blob.key]


def _damaged(memory: Memory) -> None:
    newest = grown(memory, states=2)[-1]
    data = memory.objects[newest.sketch.key]
    memory.objects[newest.sketch.key] = data[:-1] + bytes([data[-1] ^ 1])


def _blob_gone(memory: Memory) -> None:
    del memory.objects[grown(memory, states=2)[-1].sketch.key]


def _manifest_damaged(memory: Memory) -> None:
    newest = grown(memory, states=2)[-1]
    memory.objects[manifest_key(PREFIX, newest.number)] = b"rubbish"


def _misnumbered(memory: Memory) -> None:
    newest = grown(memory, states=2)[-1]
    memory.objects[manifest_key(PREFIX, newest.number + 1)] = encode_manifest(newest)


def _committed(memory: Memory) -> None:
    memory.committed = 7


def _log_lost_its_head(memory: Memory) -> None:
    grown(memory, states=2)
    memory.log = LogFacts(50, 100)


def _log_lost_its_tail(memory: Memory) -> None:
    grown(memory, states=2)
    memory.log = LogFacts(0, 0)


@pytest.mark.parametrize(
    ("spoil", "says", "remedy"),
    [
        (_damaged, "bad checksum", "checkpoint rollback rows/0"),
        (_blob_gone, "is missing", "checkpoint rollback rows/0"),
        (_manifest_damaged, "can't be restored", "checkpoint rollback rows/0"),
        (_misnumbered, "has the number 2 inside", "checkpoint rollback rows/0"),
        (_committed, "committed offset 7", "checkpoint reset rows/0"),
        (_log_lost_its_head, "removed by the topic's retention", "--keep-sketch"),
        (_log_lost_its_tail, "the log ends at 0", "checkpoint rollback rows/0"),
    ],
)
def test_what_is_wrong_is_refused_with_its_remedy_and_without_a_trace(spoil: Any, says: str, remedy: str) -> None:
    memory = Memory(log=LogFacts(0, 100))
    spoil(memory)
    before = dict(memory.objects)
    outcome = memory.run(assign(wish()))
    assert isinstance(outcome, Refused)
    assert says in outcome.why
    assert remedy in outcome.remedy
    assert memory.objects == before
    assert isinstance(outcome.error(), RefusedStateError)


def test_a_state_that_does_not_decode_is_refused_before_the_claim() -> None:
    memory = Memory(log=LogFacts(0, 100))
    grown(memory, states=2)

    def restore(*_: object) -> None:
        raise FormatError("two columns short")

    before = dict(memory.objects)
    outcome = memory.run(assign(wish(restore=restore)))
    assert isinstance(outcome, Refused)
    assert "two columns short" in outcome.why
    assert memory.objects == before


@pytest.mark.parametrize(
    ("shown", "epoch"),
    [
        (None, 2),
        (1, 2),
        (6, 7),
        (EPOCH_TAKEN_MAX, EPOCH_TAKEN_MAX + 1),
        (EPOCH_TAKEN_MAX + 1, 2),
        (EPOCH_MAX, 2),
    ],
)
def test_a_claim_is_above_what_the_output_topic_has_but_follows_no_forged_epoch(shown: int | None, epoch: int) -> None:
    memory = Memory(log=LogFacts(0, 100), output_epoch=shown)
    newest = grown(memory, states=2)[-1]
    assert newest.epoch == 1
    outcome = memory.run(assign(wish()))
    assert isinstance(outcome, Claimed)
    assert (outcome.manifest.epoch, outcome.manifest.state_id) == (epoch, newest.state_id)
    assert outcome.manifest.epoch <= EPOCH_MAX


@pytest.mark.parametrize("field", ["cluster_id", "topic_id", "group", "topic", "partition"])
def test_a_foreign_configuration_never_claims(field: str) -> None:
    memory = Memory(log=LogFacts(0, 100))
    grown(memory, states=2)
    before = dict(memory.objects)
    other = replace(BINDING, **{field: 7 if field == "partition" else "other"})
    assert isinstance(memory.run(assign(wish(binding=other))), Refused)
    assert memory.objects == before


def test_ids_that_the_broker_does_not_tell_are_not_compared() -> None:
    assert check_binding(replace(BINDING, topic_id=None), BINDING) is None
    assert check_binding(BINDING, replace(BINDING, cluster_id=None)) is None


def test_watermarks_are_asked_again_before_they_are_believed() -> None:
    memory = Memory(log=LogFacts(0, 0))
    grown(memory, states=2)
    asked = []

    def log(request: AskLog) -> LogFacts:
        asked.append(request.again)
        return LogFacts(0, 0 if len(asked) < LOG_TRIES else 100)

    memory.on_log = log
    assert isinstance(memory.run(assign(wish())), Claimed)
    assert asked == [False] + [True] * (LOG_TRIES - 1)


def test_the_broker_is_asked_only_what_matters() -> None:
    memory = Memory(log=LogFacts(0, 100))
    grown(memory, states=2)
    memory.requests.clear()
    memory.run(assign(wish()))
    assert AskOutputEpoch(needed=False) in memory.requests  # a claim can do without it
    assert not [request for request in memory.requests if request in (AskCommitted(), AskOutputEpoch())]


def test_a_leader_epoch_that_goes_back_is_another_log() -> None:
    manifest = replace(genesis(), leader_epoch=5)
    assert judge_log(manifest, LogFacts(0, 10, 5), "rows/0") is None
    assert judge_log(manifest, LogFacts(0, 10, None), "rows/0") is None
    assert isinstance(judge_log(manifest, LogFacts(0, 10, 4), "rows/0"), Refused)


@pytest.mark.parametrize("offset", [0, 10])
def test_both_ends_of_the_log_belong_to_it(offset: int) -> None:
    assert judge_log(replace(genesis(), next_offset=offset), LogFacts(0, 10), "rows/0") is None
