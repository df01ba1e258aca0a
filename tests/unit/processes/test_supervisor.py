"""The supervisor on children that are made up: who gets which signal, and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from sfd_stream.processes.restarts import RestartPolicy
from sfd_stream.processes.supervisor import Supervisor
from sfd_stream.retry import Backoff


@dataclass
class FakeChild:
    pid: int
    code: int | None = None
    on_terminate: int | None = 0
    """What it ends with when asked; None: it does not hear."""
    told: list[str] = field(default_factory=list)

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.told.append("terminate")
        self.code = self.on_terminate if self.code is None else self.code

    def kill(self) -> None:
        self.told.append("kill")
        self.code = -9 if self.code is None else self.code


class Silent:
    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_, **__: None


class Stage:
    """A supervisor whose clock moves by what it waits, and a plot: what happens at which time."""

    def __init__(self, workers: int, *, until_end: bool = False, **child: Any) -> None:
        self.now_s = 0.0
        self.children: list[FakeChild] = []
        self.plot: dict[float, Callable[[], None]] = {}
        self._child = child
        crew = RestartPolicy(workers, until_end=until_end, backoff=Backoff(1.0, 8.0), jitter=lambda: 1.0)
        self.supervisor = Supervisor(
            crew, self._spawn, Silent(), clock=lambda: self.now_s, pause=self._pause, stop_budget_s=10.0
        )

    def _spawn(self, _: int) -> FakeChild:
        self.children.append(FakeChild(len(self.children), **self._child))
        return self.children[-1]

    def _pause(self, seconds: float) -> None:
        self.now_s += seconds
        assert self.now_s < 1_000, "it never ends"
        for at_s in [at_s for at_s in self.plot if at_s <= self.now_s]:
            self.plot.pop(at_s)()

    def ends(self, index: int, code: int) -> Callable[[], None]:
        return lambda: setattr(self.children[index], "code", code)


def test_a_stop_asks_each_child_once_and_waits() -> None:
    stage = Stage(3)
    stage.plot[5.0] = stage.supervisor.stop
    assert stage.supervisor.run() == 0
    assert [child.told for child in stage.children] == [["terminate"]] * 3


def test_a_child_that_does_not_hear_is_ended_when_the_time_is_up() -> None:
    stage = Stage(2, on_terminate=None)
    stage.plot[5.0] = stage.supervisor.stop
    assert stage.supervisor.run() == 1
    assert stage.now_s >= 15.0
    assert all(child.told == ["terminate", "kill"] for child in stage.children)


def test_a_dead_child_is_replaced() -> None:
    stage = Stage(2)
    stage.plot |= {3.0: stage.ends(0, -9), 10.0: stage.supervisor.stop}
    assert stage.supervisor.run() == 0
    assert len(stage.children) == 3
    assert stage.children[2].told == ["terminate"]


def test_a_child_that_refuses_ends_all_in_good_order() -> None:
    stage = Stage(3)
    stage.plot[3.0] = stage.ends(1, 3)
    assert stage.supervisor.run() == 3
    assert [child.told for child in stage.children] == [["terminate"], [], ["terminate"]]


def test_until_the_end_it_ends_when_all_are_done() -> None:
    stage = Stage(2, until_end=True)
    stage.plot |= {3.0: stage.ends(0, 0), 4.0: stage.ends(1, 0)}
    assert stage.supervisor.run() == 0
    assert all(child.told == [] for child in stage.children)


def test_whatever_ends_the_supervisor_ends_its_children() -> None:
    stage = Stage(2)

    def fail() -> None:
        raise OSError("no more processes")

    stage.plot[2.0] = fail
    with pytest.raises(OSError, match="processes"):
        stage.supervisor.run()
    assert [child.told for child in stage.children] == [["kill"], ["kill"]]
