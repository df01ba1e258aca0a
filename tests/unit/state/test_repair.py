"""Rollback and reset: nothing is rewritten, the epoch rises, and the next owner can go on from it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sfd_stream.state.claim import Wish, assign
from sfd_stream.state.manifest import Kind, breaches, encode_manifest, manifest_key
from sfd_stream.state.protocol import Created
from sfd_stream.state.repair import Mark, ResetPoint, reset, rollback
from sfd_stream.state.retention import retain
from sfd_stream.state.steps import Refused
from sfd_stream.wire import frames
from tests.unit.state.chains import BINDING, PREFIX, Memory, grown

if TYPE_CHECKING:
    import pytest

MARK = Mark(PREFIX, "rows/0", "repair", 3.0)
START = ResetPoint(replace(BINDING, topic_id="new"), 40, None, {"ell": 8}, None)


def test_a_rollback_is_a_new_manifest_of_the_state_before() -> None:
    memory = Memory()
    chain = grown(memory, states=4)
    before = dict(memory.objects)
    outcome = memory.run(rollback(MARK))
    assert isinstance(outcome, Created)
    made = outcome.manifest
    assert breaches(chain[-1], made) == []
    assert (made.kind, made.next_offset) == (Kind.ROLLBACK, chain[-2].next_offset)
    assert made.sketch is not None
    assert memory.objects[made.sketch.key] == b"sketch2"
    assert before.items() <= memory.objects.items()


def test_a_rollback_survives_the_pruning_of_what_it_came_from() -> None:
    memory = Memory()
    grown(memory, states=5)
    made = memory.run(rollback(MARK, to=2)).manifest
    assert made.next_offset == 1
    memory.run(retain(PREFIX, keep=1, own=made, where="rows/0"))
    assert memory.objects[made.sketch.key] == b"sketch1"


def test_an_unreadable_newest_manifest_is_rolled_back_over_with_a_safe_epoch() -> None:
    memory = Memory()
    chain = grown(memory, states=4)
    memory.objects[manifest_key(PREFIX, 4)] = b"rubbish"
    made = memory.run(rollback(MARK)).manifest
    assert (made.number, made.parent, made.next_offset) == (5, None, chain[2].next_offset)
    assert made.epoch > chain[-1].epoch + 1  # it may have been a claim, an epoch above the one before it


def test_a_rollback_passes_over_states_that_are_not_whole() -> None:
    memory = Memory()
    chain = grown(memory, states=4)
    assert chain[2].sketch is not None
    del memory.objects[chain[2].sketch.key]
    assert memory.run(rollback(MARK)).manifest.next_offset == chain[1].next_offset


def test_a_rollback_with_nothing_to_go_back_to_names_the_reset() -> None:
    for memory in (Memory(), Memory(objects={manifest_key(PREFIX, 1): b"rubbish"})):
        outcome = memory.run(rollback(MARK))
        assert isinstance(outcome, Refused)
        assert "checkpoint reset rows/0" in outcome.remedy
    memory = Memory()
    grown(memory, states=1)
    assert isinstance(memory.run(rollback(MARK)), Refused)


def test_a_reset_starts_anew_or_keeps_the_sketch() -> None:
    for keep_sketch in (False, True):
        memory = Memory()
        newest = grown(memory, states=3)[-1]
        made = memory.run(reset(MARK, START, keep_sketch=keep_sketch)).manifest
        assert breaches(newest, made) == []
        assert (made.kind, made.next_offset, made.binding) == (Kind.RESET, 40, START.binding)
        assert made.counters == (newest.counters if keep_sketch else {})
        assert (made.sketch is not None) == keep_sketch
        assert made.has_pending_snapshot(newest.published)


def test_a_reset_without_a_checkpoint_begins_above_what_readers_saw() -> None:
    made = Memory().run(reset(MARK, replace(START, output_epoch=6), keep_sketch=True)).manifest
    assert (made.number, made.epoch) == (1, 7)


def test_a_reset_over_rubbish_is_above_every_epoch_that_it_may_have_had() -> None:
    memory = Memory(objects={manifest_key(PREFIX, 5): b"rubbish"})
    made = memory.run(reset(MARK, replace(START, output_epoch=6), keep_sketch=False)).manifest
    assert made.number == 6
    assert made.epoch > 6 + 5
    assert isinstance(memory.run(reset(MARK, START, keep_sketch=True)), Created)


def test_an_older_program_neither_claims_nor_repairs_a_newer_one_s_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = Memory()
    newest = grown(memory, states=3)[-1]
    monkeypatch.setattr(frames, "VERSION", 2)
    memory.objects[manifest_key(PREFIX, 3)] = encode_manifest(newest)
    monkeypatch.undo()
    before = dict(memory.objects)
    restore = list  # never reached
    wish = Wish(PREFIX, BINDING, newest.parameters, "earliest", restore, iter("n"), 0.0)
    for steps in (assign(wish), rollback(MARK), reset(MARK, START, keep_sketch=False)):
        outcome = memory.run(steps)
        assert isinstance(outcome, Refused)
        assert outcome.newer
        assert "upgrade" in outcome.remedy
    assert memory.objects == before


def test_keeping_a_sketch_that_can_t_be_read_is_refused() -> None:
    memory = Memory()
    newest = grown(memory, states=3)[-1]
    assert newest.sketch is not None
    del memory.objects[newest.sketch.key]
    before = dict(memory.objects)
    assert isinstance(memory.run(reset(MARK, START, keep_sketch=True)), Refused)
    assert memory.objects == before
