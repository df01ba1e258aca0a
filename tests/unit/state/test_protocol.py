"""CREATE, Checkpoint and the check before a publication, step by step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sfd_stream.state.manifest import StateId, breaches, encode_manifest, manifest_key
from sfd_stream.state.protocol import (
    Created,
    StillOwner,
    check_owner,
    checkpoint,
    create,
    load_state,
    plan_checkpoint,
    read_state,
)
from sfd_stream.state.steps import Answer, CreateIfAbsent, Fenced, Get, List, Put, Refused
from tests.unit.state.chains import BINDING, PREFIX, Memory, extended, genesis, grown, new_state

KEY = manifest_key(PREFIX, 1)
OURS = encode_manifest(genesis())
THEIRS = encode_manifest(replace(genesis(), nonce="theirs"))
CREATE, GET, AFTER = CreateIfAbsent(KEY, OURS), Get(KEY), List(f"{PREFIX}/manifests/", KEY)
NEXT = [manifest_key(PREFIX, 2)]


def played(steps: Any, script: list[tuple[Any, Any]]) -> Any:
    """Sends each answer after checking that its request is the one that the script has."""
    request = next(steps)
    for expected, answer in script:
        assert request == expected
        try:
            request = steps.send(answer)
        except StopIteration as stop:
            assert (expected, answer) == script[-1]
            return stop.value
    raise AssertionError(f"also asked {request}")


@pytest.mark.parametrize(
    ("script", "created"),
    [
        ([(CREATE, Answer.DONE), (AFTER, [])], True),
        ([(CREATE, Answer.DONE), (AFTER, NEXT)], False),
        ([(CREATE, Answer.EXISTS), (GET, THEIRS)], False),
        ([(CREATE, Answer.EXISTS), (GET, b"rubbish")], False),
        ([(CREATE, Answer.EXISTS), (GET, OURS), (AFTER, [])], True),
        ([(CREATE, Answer.UNKNOWN), (GET, OURS), (AFTER, [])], True),
        ([(CREATE, Answer.UNKNOWN), (GET, OURS), (AFTER, NEXT)], False),
        ([(CREATE, Answer.UNKNOWN), (GET, Answer.MISSING), (CREATE, Answer.DONE), (AFTER, [])], True),
        ([(CREATE, Answer.UNKNOWN), (GET, Answer.UNKNOWN), (GET, THEIRS)], False),
        ([(CREATE, Answer.DONE), (AFTER, Answer.UNKNOWN), (AFTER, NEXT)], False),
        ([(CREATE, Answer.DONE), (AFTER, [f"{PREFIX}/manifests/stray.tmp"])], True),
    ],
)
def test_create_believes_its_own_bytes_and_an_empty_rest(script: list[tuple[Any, Any]], created: bool) -> None:
    outcome = played(create(PREFIX, genesis()), script)
    assert outcome == (Created(genesis()) if created else Fenced(1))


def test_blobs_are_put_before_the_manifest_and_again_until_the_answer_is_known() -> None:
    own, state = genesis(), new_state(5, snapshot=b"snap")
    manifest, blobs = plan_checkpoint(PREFIX, own, state, published=None, nonce="n", written_at_s=0.0)
    puts = [Put(key, data) for key, data in blobs.items()]
    assert [put.data for put in puts] == [b"sketch5", b"snap"]
    key, after = manifest_key(PREFIX, 2), List(f"{PREFIX}/manifests/", manifest_key(PREFIX, 2))
    steps = checkpoint(PREFIX, own, state, binding=BINDING, published=None, nonce="n", written_at_s=0.0)
    script = [
        (puts[0], Answer.UNKNOWN),
        (puts[0], Answer.DONE),
        (puts[1], Answer.DONE),
        (CreateIfAbsent(key, encode_manifest(manifest)), Answer.DONE),
        (after, []),
    ]
    assert played(steps, script) == Created(manifest)


def test_a_checkpoint_refers_to_what_did_not_change_and_names_itself() -> None:
    memory = Memory()
    first = grown(memory, states=2)[-1]
    state = replace(new_state(9), sketch=first.sketch, buffer=(b"segment",))
    second = extended(memory, first, state, nonce="second")
    assert breaches(first, second) == []
    assert second.sketch == first.sketch
    assert second.due == first.due
    assert second.state_id == first.next_state_id == StateId(1, 3)
    assert memory.objects[second.buffer[0].key] == b"segment"
    assert second.buffer[0].key == f"{PREFIX}/blobs/{3:020d}-1-second-buffer-0"


def test_a_topic_made_again_stops_a_checkpoint_before_it_writes() -> None:
    memory = Memory()
    own = grown(memory, states=2)[-1]
    before = dict(memory.objects)
    other = replace(BINDING, topic_id="made-again")
    steps = checkpoint(PREFIX, own, new_state(9), binding=other, published=None, nonce="n", written_at_s=0.0)
    assert isinstance(memory.run(steps), Refused)
    assert memory.objects == before


def test_only_the_newest_manifest_s_owner_may_publish() -> None:
    memory = Memory()
    chain = grown(memory, states=3)
    assert memory.run(check_owner(PREFIX, chain[-1])) == StillOwner()
    assert memory.run(check_owner(PREFIX, chain[-2])) == Fenced(chain[-2].number)
    assert memory.run(check_owner(PREFIX, replace(chain[-1], nonce="theirs"))) == Fenced(chain[-1].number)
    del memory.objects[manifest_key(PREFIX, chain[-1].number)]
    assert isinstance(memory.run(check_owner(PREFIX, chain[-1])), Fenced)


def test_a_state_is_loaded_with_its_sketch_and_its_buffer_in_order() -> None:
    memory = Memory()
    first = grown(memory, states=1)[0]
    made = extended(memory, first, replace(new_state(1, snapshot=b"s"), buffer=(b"one", b"two")), nonce="n")
    found = memory.run(read_state(PREFIX, made.number, where="rows/0"))
    assert (found.manifest, found.sketch, found.buffer, found.others) == (made, b"sketch1", (b"one", b"two"), ())
    with_snapshot = memory.run(load_state(made, made.snapshot_references, where="rows/0"))
    assert (with_snapshot.buffer, with_snapshot.others) == ((b"one", b"two"), (b"s",))
    empty = memory.run(read_state(PREFIX, first.number, where="rows/0"))
    assert (empty.sketch, empty.buffer) == (None, ())


@pytest.mark.parametrize("damage", ["is missing", "has a bad checksum"])
def test_a_state_whose_blob_is_damaged_is_refused(damage: str) -> None:
    memory = Memory()
    newest = grown(memory, states=2)[-1]
    assert newest.sketch is not None
    if damage == "is missing":
        del memory.objects[newest.sketch.key]
    else:
        memory.objects[newest.sketch.key] += b"x"
    found = memory.run(read_state(PREFIX, newest.number, where="rows/0"))
    assert isinstance(found, Refused)
    assert found.why == f"checkpoint {newest.number} of rows/0 can't be restored: {newest.sketch.key} {damage}"
