"""The protocol under every fault that the model knows: no row lost or counted twice, one chain, one order.

SFD_MODEL_SCHEDULES sets how many random schedules are run (the default is for every day; 100000 for a night).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from sfd_stream.state.steps import AskCommitted, CreateIfAbsent, List
from tests.unit.state.mutants import CAUGHT, SCRIPTED, SECOND_SAFEGUARDS, Mutant
from tests.unit.state.owners import Owner
from tests.unit.state.schedules import FAULTS, Stage, simulate
from tests.unit.state.world import Produce, Violation, World

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEDULES = int(os.environ.get("SFD_MODEL_SCHEDULES", "500"))
SHARES = 4
MUTANT_SCHEDULES = 1500


@pytest.mark.parametrize("share", range(SHARES))
def test_no_random_schedule_breaks_a_law(share: int) -> None:
    for seed in range(share, SCHEDULES, SHARES):
        try:
            simulate(seed)
        except Violation as broken:
            raise AssertionError(f"schedule {seed}: {broken}") from broken


def test_schedules_reach_what_they_are_for() -> None:
    """Forks that lose, takeovers, prunes, rollbacks and stale records all happen in the schedules above."""
    seen = {"takeover": 0, "pruned": 0, "rollback": 0, "stale": 0, "several states": 0, "restored": 0}
    for seed in range(80):
        world = simulate(seed)
        kinds = [manifest.kind.value for manifest in world.chain]
        seen["takeover"] += kinds.count("claim") > 2
        seen["rollback"] += "rollback" in kinds
        seen["several states"] += len({manifest.state_id for manifest in world.chain}) > 3
        seen["restored"] += world.restored
        seen["pruned"] += world.floor() > 1
        seen["stale"] += world.watched() != world.topic
    assert all(seen.values()), seen


# -- schedules told step by step -------------------------------------------------------------------------


class Told(Stage):
    """Drives one process until its next request is of a kind; its choices are told."""

    def until(
        self, process: int, awaited: Callable[[Any], bool], *, snapshot: bool = False, prune: bool = False
    ) -> None:
        answers = {6: 0 if prune else 3, 2: 0 if snapshot else 1, 3: 1, 8: 1}
        for _ in range(200):
            pending = self.actors[process].pending
            if awaited(pending):
                return
            self.step(process, choice=answers.get(getattr(pending, "options", 0), 0))
        raise AssertionError(f"process {process} never came to it")

    def grow(self, process: int, *, snapshot: bool = False) -> None:
        """Until the chain is one longer."""
        before = self.world.newest
        self.until(process, lambda _: self.world.newest > before, snapshot=snapshot)

    def prune(self, process: int) -> None:
        self.until(process, lambda _: len(m_keys(self.world)) == 1, prune=True)


def m_keys(world: World) -> list[str]:
    return [key for key in world.objects if "/manifests/" in key]


def creates(number: int) -> Callable[[Any], bool]:
    return lambda request: isinstance(request, CreateIfAbsent) and request.key.endswith(f"{number:020d}")


def overtaken(owner: type[Owner], *, before: Callable[[Any], bool]) -> Told:
    """A made checkpoint 2, twice over, and sleeps `before` its next thing; B takes over, goes on and prunes.

    Then the duplicate of A's create arrives: slots 2 and 3 look as if nothing had happened.
    """
    told = Told(World(keep=1, log_end=9), owner)
    told.start(0)
    told.until(0, creates(2), snapshot=True)
    told.step(0, "twice")
    told.until(0, before)
    told.start(1)
    for _ in range(3):
        told.grow(1, snapshot=True)
    told.prune(1)
    told.land(0)
    assert len(m_keys(told.world)) == 2
    return told


def revived_create(owner: type[Owner]) -> None:
    told = overtaken(owner, before=creates(3))
    while 0 in told.actors:
        told.step(0, choice=1)
    told.finish(lambda _: 0, more=True)


def revived_publish(owner: type[Owner]) -> None:
    told = overtaken(owner, before=lambda request: not isinstance(request, CreateIfAbsent | List))
    while 0 in told.actors:
        told.step(0, choice=1)
    told.finish(lambda _: 0, more=True)


def stale_on_top(owner: type[Owner]) -> None:
    """A sleeps before it publishes (1, 2); B publishes a newer one and records that; A's arrives last."""
    told = Told(World(keep=1, log_end=9), owner)
    told.start(0)
    told.until(0, lambda request: isinstance(request, Produce), snapshot=True)
    told.start(1)
    told.grow(1)  # its claim
    told.grow(1, snapshot=True)
    told.grow(1)
    told.step(0)
    assert told.world.topic[-1] < max(told.world.topic)
    told.finish(lambda _: 0, more=False)


def begun_meanwhile(owner: type[Owner]) -> None:
    """A finds no manifest and sleeps; B begins and commits; A finds a committed offset without a manifest."""
    told = Told(World(keep=1, log_end=9), owner)
    told.start(0)
    told.until(0, lambda request: isinstance(request, AskCommitted))
    told.start(1)
    told.until(1, lambda _: told.world.committed is not None)
    told.grow(0)
    told.finish(lambda _: 0, more=True)


def old_upload(owner: type[Owner]) -> None:
    """A's checkpoint is on its way; A is assigned again, and finds it in the slot of its claim."""
    told = Told(World(keep=1, log_end=9), owner)
    told.start(0)
    told.until(0, creates(2))
    told.step(0, "late")
    told.start(0)
    told.until(0, creates(2))
    told.land(0)
    told.grow(0)
    told.finish(lambda _: 0, more=True)


def restored_backup(owner: type[Owner]) -> None:
    """A backup of the first owner's state is put back after three more owners have published."""
    told = Told(World(keep=1, log_end=2), owner)
    told.start(0)
    told.grow(0, snapshot=True)
    told.world.back_up()
    for process in (1, 2, 3):
        told.world.log_end += 2
        told.start(process)
        told.grow(process)  # its claim
        told.grow(process, snapshot=True)
        told.until(process, lambda request: not isinstance(request, Produce))
        told.step(process)
    told.restore_backup()
    told.start(4)
    told.grow(4)
    told.finish(lambda _: 0, more=True)


SCRIPTS = {
    "restored backup": restored_backup,
    "revived create": revived_create,
    "revived publish": revived_publish,
    "stale on top": stale_on_top,
    "begun meanwhile": begun_meanwhile,
    "old upload": old_upload,
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_told_schedules_break_no_law(script: str) -> None:
    SCRIPTS[script](Owner)


# -- the model has teeth ---------------------------------------------------------------------------------


def _first_violation(mutant: Mutant, schedules: int) -> int | None:
    for seed in range(schedules):
        try:
            simulate(seed, mutant.owner)
        except Violation:
            return seed
    return None


@pytest.mark.parametrize("mutant", CAUGHT, ids=lambda mutant: f"{mutant.flaw}: {mutant.name}")
def test_the_model_catches(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.patch(monkeypatch)
    assert _first_violation(mutant, MUTANT_SCHEDULES) is not None


@pytest.mark.parametrize(("script", "mutant"), SCRIPTED, ids=lambda x: getattr(x, "name", x))
def test_a_told_schedule_catches(script: str, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.patch(monkeypatch)
    with pytest.raises(Violation):
        SCRIPTS[script](mutant.owner)


@pytest.mark.parametrize("mutant", SECOND_SAFEGUARDS, ids=lambda mutant: f"{mutant.flaw}: {mutant.name}")
def test_second_safeguards_are_not_what_holds_it(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Undone, nothing breaks here: the LIST after a create and the names of blobs hold without them.

    They stay for stores that keep less than they promise. If one is caught some day, it belongs above.
    """
    mutant.patch(monkeypatch)
    assert _first_violation(mutant, 150) is None


# -- hypothesis, which shrinks what it finds -------------------------------------------------------------


class Owners(RuleBasedStateMachine):
    """Four processes, one partition; hypothesis chooses what happens next."""

    @initialize(keep=st.integers(1, 3), old_epoch=st.sampled_from([None, 7]))
    def begin(self, keep: int, old_epoch: int | None) -> None:
        self.stage = Stage(World(keep=keep, old_epoch=old_epoch))
        self.stage.start(0)

    @rule(process=st.integers(0, 3))
    def start(self, process: int) -> None:
        self.stage.start(process)

    @precondition(lambda self: self.stage.world.chain)
    @rule(process=st.integers(0, 3), kind=st.sampled_from(["foreigner", "person"]))
    def intrude(self, process: int, kind: str) -> None:
        if kind == "person":
            self.stage.repair(process)
        else:
            self.stage.start(process, foreign=True)

    @precondition(lambda self: self.stage.actors)
    @rule(which=st.integers(0, 3), fault=st.sampled_from(FAULTS), choice=st.integers(0, 23))
    def step(self, which: int, fault: str, choice: int) -> None:
        actors = sorted(self.stage.actors)
        self.stage.step(actors[which % len(actors)], fault, choice)

    @precondition(lambda self: self.stage.actors)
    @rule(which=st.integers(0, 3), length=st.integers(5, 40), choice=st.integers(0, 23))
    def burst(self, which: int, length: int, choice: int) -> None:
        process = sorted(self.stage.actors)[which % len(self.stage.actors)]
        for turn in range(length):
            if process in self.stage.actors:
                self.stage.step(process, "ok", choice + turn)

    @precondition(lambda self: self.stage.actors)
    @rule(which=st.integers(0, 3))
    def crash(self, which: int) -> None:
        actors = sorted(self.stage.actors)
        self.stage.crash(actors[which % len(actors)])

    @rule(index=st.integers(0, 7))
    def land(self, index: int) -> None:
        self.stage.land(index)

    @precondition(lambda self: self.stage.world.chain)
    @rule()
    def back_up(self) -> None:
        self.stage.world.back_up()

    @precondition(lambda self: self.stage.world.backup is not None)
    @rule()
    def restore_backup(self) -> None:
        self.stage.restore_backup()

    @rule(rows=st.integers(1, 3))
    def append(self, rows: int) -> None:
        self.stage.world.log_end += rows

    def teardown(self) -> None:
        if hasattr(self, "stage"):
            self.stage.finish(lambda _: 0, more=True)


TestOwners = Owners.TestCase
TestOwners.settings = settings(
    max_examples=40,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
