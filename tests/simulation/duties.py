"""Laws of a worker's conduct: what it believes to be durable is, and what it has released it leaves alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.simulation.judge import INPUT, OUTPUT, Judge
from tests.simulation.scheduler import Process, Task, active
from tests.simulation.world import World

THREADS_MOST = 40
REQUESTS_MOST = 60
"""Of one process, at any time: threads, and requests that the broker has not answered."""

LOOK_S = 1.0


class Duties:
    def __init__(self, world: World, judge: Judge) -> None:
        self._world = world
        self._judge = judge
        self._released: dict[tuple[str, int], dict[Task | None, int]] = {}
        """By process and partition, since its release: writes that each task has begun."""
        world.objects.on_begin = self._begin_write
        world.on_produce = self._produce
        world.on_rebalanced = self._rebalanced

    def watch_bounds(self, processes: Callable[[], Iterable[Process]]) -> None:
        """Checks once a second that what a process has open does not grow."""
        for process in processes():
            threads, requests = active().threads_of(process), self._world.network.open_requests(process)
            if process.alive and (threads > THREADS_MOST or requests > REQUESTS_MOST):
                self._judge.fail("bounded", f"{process.name} has {threads} threads and {requests} open requests")
        active().call_later(LOOK_S, lambda: self.watch_bounds(processes))

    def reached(self, who: str, believed: Iterable[tuple[int, int, bytes]]) -> None:
        """A manifest (partition, number, bytes) that a worker takes for its newest is, or was, the newest one."""
        for partition, number, data in believed:
            if not self._judge.is_in_chain(partition, data):
                text = f"{who} goes on after manifest {number} of partition {partition}, which is not in the chain"
                self._judge.fail("believed durable", text)

    def _begin_write(self, process: Process, key: str, data: bytes | None) -> None:
        del data
        task, partition = active().current, _partition(key)
        begun = None if partition is None else self._released.get((process.name, partition))
        if begun is None:
            return
        begun[task] = begun.get(task, 0) + 1
        if begun[task] > 1:  # one may have been on its way when the partition was released
            self._judge.fail("released", f"{process.name} writes {key} after it has released partition {partition}")

    def _produce(self, process: Process, topic: str, key: bytes | None) -> None:
        if topic != OUTPUT or key is None:
            return
        partition = int(key.decode().rpartition("/")[2])
        if (process.name, partition) in self._released and self._judge.is_idempotent:
            self._judge.fail("released", f"{process.name} publishes partition {partition} after it has released it")

    def _rebalanced(self, process: Process, partitions: list[int], assigns: bool) -> None:
        for partition in partitions:
            if assigns:
                self._released.pop((process.name, partition), None)
            else:
                self._released[process.name, partition] = {}


def _partition(key: str) -> int | None:
    _, found, rest = key.partition(f"/{INPUT}/")
    number = rest.partition("/")[0]
    return int(number) if found and number.isdigit() else None
