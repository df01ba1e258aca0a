"""A store and a broker that answer at once, and short chains of manifests in them, for the unit laws."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sfd_stream.state.manifest import Binding, Kind, Manifest, StateId, encode_manifest, manifest_key
from sfd_stream.state.protocol import Created, NewState, checkpoint
from sfd_stream.state.steps import (
    Answer,
    AskCommitted,
    AskLog,
    AskOutputEpoch,
    CreateIfAbsent,
    Delete,
    Get,
    GetMany,
    List,
    LogFacts,
    Put,
    Steps,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX = "group/rows/0"
BINDING = Binding("cluster", "topic-id", "group", "rows", 0)


@dataclass
class Memory:
    objects: dict[str, bytes] = field(default_factory=dict)
    log: LogFacts = field(default_factory=lambda: LogFacts(0, 0))
    committed: int | None = None
    output_epoch: int | None = None
    requests: list[Any] = field(default_factory=list)
    on_log: Callable[[AskLog], LogFacts] | None = None

    def run(self, steps: Steps[Any]) -> Any:
        answer = None
        while True:
            try:
                request = steps.send(answer)
            except StopIteration as stop:
                return stop.value
            self.requests.append(request)
            answer = self.answer(request)

    def answer(self, request: Any) -> Any:  # noqa: PLR0911 - one branch a request
        match request:
            case List(prefix, after):
                return sorted(k for k in self.objects if k.startswith(prefix) and (after is None or k > after))
            case Get(key):
                return self.objects.get(key, Answer.MISSING)
            case GetMany(keys):
                return [self.objects.get(key, Answer.MISSING) for key in keys]
            case CreateIfAbsent(key, data):
                if key in self.objects:
                    return Answer.EXISTS
                self.objects[key] = data
            case Put(key, data):
                self.objects[key] = data
            case Delete(key):
                self.objects.pop(key, None)
            case AskLog():
                return self.log if self.on_log is None else self.on_log(request)
            case AskCommitted():
                return self.committed
            case AskOutputEpoch():
                return self.output_epoch
        return Answer.DONE


def genesis() -> Manifest:
    return Manifest(
        number=1,
        epoch=1,
        nonce="genesis",
        parent=None,
        kind=Kind.GENESIS,
        binding=BINDING,
        next_offset=0,
        leader_epoch=None,
        sketch=None,
        buffer=(),
        counters={},
        parameters={"ell": 4, "d": 10, "columns": "fixed"},
        state_id=StateId(1, 1),
        due=None,
        published=None,
        written_at_s=0.5,
    )


def new_state(offset: int, *, snapshot: bytes | None = None) -> NewState:
    name = b"%d" % offset
    return NewState(offset, 3, b"sketch" + name, (), {"rows": offset}, genesis().parameters, snapshot)


def grown(memory: Memory, *, states: int, snapshots: bool = True) -> list[Manifest]:
    """A genesis and checkpoints, `states` distinct ones in all; every snapshot but the last is published."""
    chain = [genesis()]
    memory.objects[manifest_key(PREFIX, 1)] = encode_manifest(chain[0])
    for i in range(1, states):
        state = new_state(i, snapshot=b"snapshot%d" % i if snapshots else None)
        chain.append(extended(memory, chain[-1], state, nonce=f"n{i}"))
    return chain


def extended(memory: Memory, own: Manifest, state: NewState, *, nonce: str) -> Manifest:
    outcome = memory.run(
        checkpoint(PREFIX, own, state, binding=BINDING, published=own.due, nonce=nonce, written_at_s=2.0)
    )
    assert isinstance(outcome, Created)
    return outcome.manifest
