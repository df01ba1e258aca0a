"""Random schedules of owners over a world, from a seed. Each seed draws its own mixture of faults."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sfd_stream.state.steps import Answer, AskCommitted, AskLog, AskOutputEpoch, CreateIfAbsent
from tests.unit.state.owners import Foreigner, Owner, Program, person
from tests.unit.state.world import FOREIGN, WRITES, Choose, Poll, World, law

if TYPE_CHECKING:
    from collections.abc import Callable

    from sfd_stream.state.manifest import StateId

FAULTS = ("ok", "lost", "answer lost", "late", "twice", "conflict")
SNAPSHOT_DUE = 2
"""A choice by which an owner's checkpoint brings a snapshot, and is not given up."""

_NEVER_LOST = (Choose, Poll, AskLog, AskCommitted, AskOutputEpoch)


@dataclass
class Actor:
    program: Program
    pending: Any = None
    over: bool = False

    def advance(self, answer: Any) -> None:
        try:
            self.pending = self.program.send(answer)
        except StopIteration:
            self.over, self.pending = True, None


@dataclass
class Stage:
    """A world and the actors on it; every method is one thing that may happen next."""

    world: World
    owner: type[Owner] = Owner
    actors: dict[int, Actor] = field(default_factory=dict)
    lives: int = 0

    def start(self, process: int, *, foreign: bool = False) -> None:
        """An assignment. What the process was doing before is dropped; its last write may still arrive."""
        self.crash(process)
        self.lives += 1
        if foreign:
            program = Foreigner(self.world, process, self.lives, FOREIGN).run()
        else:
            program = self.owner(self.world, process, self.lives).run()
        self._enter(process, program)

    def repair(self, process: int) -> None:
        self.crash(process)
        self.lives += 1
        self._enter(process, person(self.world, f"p{self.lives}"))

    def _enter(self, process: int, program: Program) -> None:
        self.actors[process] = actor = Actor(program)
        actor.advance(None)

    def crash(self, process: int) -> None:
        actor = self.actors.pop(process, None)
        if actor is not None and isinstance(actor.pending, WRITES):
            self.world.late.append(actor.pending)  # it was on its way

    def step(self, process: int, fault: str = "ok", choice: int = 0) -> None:
        actor = self.actors[process]
        actor.advance(self._answer(actor.pending, fault, choice))
        if actor.over:
            del self.actors[process]

    def _answer(self, request: Any, fault: str, choice: int) -> Any:  # noqa: PLR0911 - one a fault
        if isinstance(request, Choose):
            return choice % request.options
        if fault == "ok" or isinstance(request, _NEVER_LOST):
            return self.world.effect(request)
        if not isinstance(request, WRITES) or fault == "lost":
            return Answer.UNKNOWN
        if fault == "late":
            self.world.late.append(request)
            return Answer.UNKNOWN
        answer = self.world.effect(request)
        if fault == "twice":
            self.world.late.append(request)
            return answer
        if fault == "conflict":  # a client that retries by itself meets its own write
            return Answer.EXISTS if isinstance(request, CreateIfAbsent) else answer
        return Answer.UNKNOWN

    def land(self, index: int) -> None:
        if self.world.late:
            self.world.effect(self.world.late.pop(index % len(self.world.late)))

    def restore_backup(self) -> None:
        """Everybody is stopped first, as docs/operations.md says."""
        for process in list(self.actors):
            self.crash(process)
        self.world.restore()

    # -- the quiet end ---------------------------------------------------------------------------------

    def finish(self, pick: Callable[[int], int], *, more: bool) -> None:
        """All stop; what is on its way arrives; one owner comes, undisturbed. `more`: he checkpoints too."""
        for process in list(self.actors):
            self.crash(process)
        world = self.world
        while world.late:
            self.land(pick(len(world.late)))
        last = self.owner(world, 9, self.lives + 1)
        self.alone(last.take_over())
        promised = world.chain[-1].due
        if not world.restored:  # what was due then may be older than what readers have
            self._check_published(promised.id if promised else None)
        if more or world.restored:
            world.log_end += 2
            last.rows.pending += tuple(range(len(last.rows.offsets), world.log_end))
            before = world.newest
            self.alone(last.checkpoint(), choice=SNAPSHOT_DUE if world.restored else 3)
            if world.restored:
                law(world.watched()[-1] == world.chain[-1].state_id, "readers stay on what the backup replaced")
            law(world.newest == before + 1, "an undisturbed owner makes no progress")
            law(world.chain[-1].next_offset == world.log_end == world.committed, "rows were left behind")
        self.alone(last.republish())
        law(
            not world.chain[-1].due or world.topic[-1] == max(world.topic),
            "a cold reader sees a stale snapshot",
        )
        self.alone(last.prune())
        listed = [key for key in world.objects if "/manifests/" in key]
        law(len(listed) == world.newest - world.floor() + 1, "manifests below the floor were left")
        world.watched()

    def _check_published(self, due: StateId | None) -> None:
        if due is not None:
            law(due in self.world.topic, f"{due} was due and is never published")
            law(
                self.world.watched()[-1] == max(self.world.topic) == due,
                "a watching reader misses what is due",
            )

    def alone(self, program: Program, choice: int = 3) -> None:
        actor = Actor(program)
        actor.advance(None)
        while not actor.over:
            actor.advance(self._answer(actor.pending, "ok", choice))


def simulate(seed: int, owner: type[Owner] = Owner, *, rollbacks: bool = True) -> World:
    """One schedule. Raises Violation; returns the world for a look at what happened in it."""
    rng = random.Random(seed)
    world = World(keep=rng.choice([1, 1, 2, 3]), old_epoch=rng.choice([None, None, 7]))
    stage = Stage(world, owner)
    processes = rng.randint(2, 4)
    fault_share = rng.choice([0.0, 0.05, 0.2, 0.4])
    kinds = rng.sample(FAULTS[1:], rng.choice([1, 1, 2, 5]))
    churn, landing, burst = (
        rng.choice([0.005, 0.02, 0.06]),
        rng.choice([0.01, 0.05, 0.2]),
        rng.choice([1, 5, 25]),
    )
    repairs = rollbacks and rng.random() < 0.2
    backups = rng.random() < 0.2
    drowsy = rng.choice([0.0, 0.02, 0.1])
    asleep: set[int] = set()
    current = 0
    for _ in range(rng.choice([60, 150, 400])):
        roll = rng.random()
        if not stage.actors or roll < churn:
            stage.start(rng.randrange(processes), foreign=bool(world.chain) and rng.random() < 0.1)
        elif roll < churn * 1.2:
            stage.crash(rng.choice(list(stage.actors)))
        elif roll < churn * 1.2 + landing:
            stage.land(rng.randrange(1 << 16))
        elif repairs and roll > 0.998:
            stage.repair(rng.randrange(processes))
        elif backups and world.chain and roll > 0.98:
            if world.backup is None or rng.random() < 0.3:
                world.back_up()
            else:
                stage.restore_backup()
        elif rng.random() < 0.1:
            world.log_end += 1
        else:
            if rng.random() < drowsy:
                asleep ^= {current}
            if current not in stage.actors or current in asleep or rng.random() < 1 / burst:
                awake = [process for process in stage.actors if process not in asleep]
                current = rng.choice(awake or list(stage.actors))
            fault = rng.choice(kinds) if rng.random() < fault_share else "ok"
            stage.step(current, fault, rng.randrange(1 << 16))
    stage.finish(rng.randrange, more=rng.random() < 0.5)
    return world
