"""What is removed, in which order, and what never is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfd_stream.state.manifest import Kind, Manifest, blob_key, encode_manifest, manifest_key, numbers_of
from sfd_stream.state.retention import Removed, retain
from sfd_stream.state.steps import Answer, Delete, Fenced, Get, Refused
from tests.unit.state.chains import PREFIX, Memory, grown


def claimed(memory: Memory, own: Manifest, times: int) -> Manifest:
    for _ in range(times):
        number = own.number + 1
        own = replace(own, number=number, epoch=own.epoch + 1, nonce=f"c{number}", parent=own.nonce, kind=Kind.CLAIM)
        memory.objects[manifest_key(PREFIX, number)] = encode_manifest(own)
    return own


def manifests(memory: Memory) -> list[int]:
    return numbers_of(key for key in memory.objects if "/manifests/" in key)


@pytest.mark.parametrize("keep", [1, 2, 3, 9])
def test_the_newest_states_stay_with_all_that_they_refer_to(keep: int) -> None:
    memory = Memory()
    chain = grown(memory, states=5)
    outcome = memory.run(retain(PREFIX, keep=keep, own=chain[-1], where="rows/0"))
    kept = chain[-keep:]
    assert manifests(memory) == [manifest.number for manifest in kept]
    assert {blob.key for m in kept for blob in m.references} == {k for k in memory.objects if "/blobs/" in k}
    assert isinstance(outcome, Removed)
    assert outcome.manifests == 5 - len(kept)


def test_restarts_push_no_state_out_and_cost_no_reads() -> None:
    memory = Memory()
    chain = grown(memory, states=4)
    own = claimed(memory, chain[-1], times=30)
    memory.requests.clear()
    memory.run(retain(PREFIX, keep=2, own=own, where="rows/0"))
    assert manifests(memory)[0] == chain[-2].number
    assert len([request for request in memory.requests if isinstance(request, Get)]) == 1


def test_manifests_go_first_ascending_one_at_a_time_each_confirmed() -> None:
    memory = Memory()
    own = grown(memory, states=5)[-1]
    steps = retain(PREFIX, keep=1, own=own, where="rows/0")
    deleted, answer, doubted = [], None, False
    while True:
        try:
            request = steps.send(answer)
        except StopIteration:
            break
        answer = memory.answer(request)
        if isinstance(request, Delete):
            deleted.append(request.key)
            if not doubted:
                answer, doubted = Answer.UNKNOWN, True
    first = [key for key in deleted if "/manifests/" in key]
    assert first == [manifest_key(PREFIX, n) for n in (1, 1, 2, 3, 4)]
    assert deleted[: len(first)] == first


def test_a_checkpoint_in_the_making_and_strangers_files_are_left_alone() -> None:
    memory = Memory()
    own = grown(memory, states=3)[-1]
    making = blob_key(PREFIX, own.number + 1, 1, "other", "sketch")
    orphan = blob_key(PREFIX, own.number, 1, "other", "sketch")
    stray = f"{PREFIX}/blobs/README"
    memory.objects |= {making: b"", orphan: b"", stray: b""}
    memory.run(retain(PREFIX, keep=1, own=own, where="rows/0"))
    assert making in memory.objects
    assert stray in memory.objects
    assert orphan not in memory.objects


def test_every_snapshot_since_the_last_acknowledged_one_stays() -> None:
    memory = Memory()
    chain = grown(memory, states=6)
    own = replace(chain[-1], published=chain[2].due)  # those of 4 and 5 were sent, their reports were lost
    memory.run(retain(PREFIX, keep=1, own=own, where="rows/0"))
    snapshots = [key for key in memory.objects if key.endswith("-snapshot")]
    assert snapshots == [m.due.blob.key for m in chain[2:] if m.due is not None]


def test_one_who_is_fenced_removes_nothing() -> None:
    memory = Memory()
    chain = grown(memory, states=5)
    before = dict(memory.objects)
    assert memory.run(retain(PREFIX, keep=1, own=chain[-2], where="rows/0")) == Fenced(chain[-2].number)
    assert memory.objects == before


def test_no_blob_goes_while_a_kept_manifest_can_t_be_read() -> None:
    memory = Memory()
    chain = grown(memory, states=5)
    memory.objects[manifest_key(PREFIX, 4)] = b"rubbish"
    outcome = memory.run(retain(PREFIX, keep=2, own=chain[-1], where="rows/0"))
    assert outcome == Removed(manifests=2, blobs=0)
    assert manifests(memory) == [3, 4, 5]


def test_a_person_prunes_from_what_is_newest_and_never_below_damage() -> None:
    memory = Memory()
    assert memory.run(retain(PREFIX, keep=1, where="rows/0")) == Removed(0, 0)
    grown(memory, states=3)
    memory.objects[manifest_key(PREFIX, 3)] = b"rubbish"
    before = dict(memory.objects)
    assert isinstance(memory.run(retain(PREFIX, keep=1, where="rows/0")), Refused)
    assert memory.objects == before
