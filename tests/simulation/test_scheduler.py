"""The scheduler, its primitives and the loader: same seed, same order; a substitute behaves like the real one."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

from tests.simulation import primitives as p
from tests.simulation.loader import Edit, EditError, Universe
from tests.simulation.run import ROOT
from tests.simulation.scheduler import Process, Scheduler, active, running


def run(target: Callable[[], Any], seed: int = 0, seconds: float = 100.0, **chances: float) -> Scheduler:
    scheduler = Scheduler(seed, **chances)  # type: ignore[arg-type]
    with running(scheduler):
        scheduler.spawn(Process("main"), "main", target)
        scheduler.run_until(scheduler.now + seconds)
    return scheduler


def order_of(seed: int) -> list[int]:
    found: list[int] = []

    def main() -> None:
        for number in range(8):
            p.Thread(target=lambda number=number: found.append(number)).start()

    run(main, seed)
    return found


def test_the_same_seed_gives_the_same_order_and_others_give_others() -> None:
    assert order_of(1) == order_of(1)
    assert len({tuple(order_of(seed)) for seed in range(10)}) > 1


def test_time_jumps_to_the_next_timer() -> None:
    times = []

    def main() -> None:
        began = p.monotonic()
        p.sleep(50.0)
        times.append(p.monotonic() - began)

    run(main)
    assert 50.0 <= times[0] < 50.01


def test_an_event_wakes_who_waits_and_times_out_who_waits_too_long() -> None:
    event, found = p.Event(), []

    def main() -> None:
        p.Thread(target=lambda: found.append(event.wait(1.0))).start()
        p.Thread(target=lambda: found.append(event.wait(5.0))).start()
        p.sleep(2.0)
        event.set()

    run(main)
    assert found == [False, True]


def test_a_lock_is_held_by_one_task_at_a_time() -> None:
    lock, inside, most = p.Lock(), [], []

    def work() -> None:
        with lock:
            inside.append(1)
            most.append(len(inside))
            p.sleep(0.1)
            inside.pop()

    run(lambda: [p.Thread(target=work).start() for _ in range(5)], preempt=0.5)
    assert most == [1, 1, 1, 1, 1]


def test_a_condition_waits_until_what_it_waits_for_holds() -> None:
    condition, items, found = p.Condition(), [], []

    def take() -> None:
        with condition:
            condition.wait_for(lambda: len(items) == 3)
            found.append(list(items))

    def main() -> None:
        p.Thread(target=take).start()
        for number in range(3):
            p.sleep(1.0)
            with condition:
                items.append(number)
                condition.notify_all()

    run(main)
    assert found == [[0, 1, 2]]


def test_a_queue_gives_in_order_and_raises_empty_in_time() -> None:
    items, found = p.SimpleQueue(), []

    def main() -> None:
        items.put(1)
        items.put(2)
        found.extend([items.get(), items.get()])
        try:
            items.get(timeout=1.0)
        except queue.Empty:
            found.append("empty")

    run(main)
    assert found == [1, 2, "empty"]


def test_a_future_gives_its_result_its_error_its_time_out_and_its_cancellation() -> None:
    found: list[Any] = []

    def main() -> None:
        future, failed, late, cancelled = p.Future(), p.Future(), p.Future(), p.Future()
        p.Thread(target=lambda: (p.sleep(1.0), future.set_result(7))).start()
        failed.set_exception(ValueError("no"))
        cancelled.cancel()
        found.append(future.result())
        for each, kind in ((failed, ValueError), (late, TimeoutError), (cancelled, CancelledError)):
            with pytest.raises(kind):
                each.result(1.0)

    assert run(main).failure is None
    assert found == [7]


def test_a_crashed_process_never_runs_again_and_a_paused_one_goes_on_where_it_was() -> None:
    scheduler, found = Scheduler(0), []

    def count(name: str) -> None:
        for number in range(10):
            found.append((name, number))
            p.sleep(1.0)

    with running(scheduler):
        processes = [Process("crashed"), Process("paused"), Process("well")]
        for process in processes:
            scheduler.spawn(process, process.name, lambda name=process.name: count(name))
        scheduler.run_until(scheduler.now + 2.5)
        scheduler.crash(processes[0])
        scheduler.pause(processes[1])
        scheduler.run_until(scheduler.now + 20.0)
        numbers = {process.name: [n for name, n in found if name == process.name] for process in processes}
        assert numbers == {"crashed": [0, 1, 2], "paused": [0, 1, 2], "well": list(range(10))}
        scheduler.resume(processes[1])
        scheduler.run_until(scheduler.now + 20.0)
        assert [n for name, n in found if name == "paused"] == list(range(10))


def test_tasks_that_never_end_are_unwound_with_their_finally_blocks() -> None:
    unwound = []

    def main() -> None:
        try:
            active().wait(None)
        finally:
            unwound.append(True)
            p.sleep(1.0)  # raises: the world is over

    run(main)
    assert unwound == [True]


def test_a_thread_that_dies_ends_the_simulation() -> None:
    with pytest.raises(ZeroDivisionError):
        run(lambda: p.Thread(target=lambda: 1 // 0).start())


def test_a_primitive_that_is_not_simulated_says_so() -> None:
    threading = p.substitutes(p.Randomness())["threading"]
    with pytest.raises(AttributeError, match="Barrier is not simulated"):
        threading.Barrier  # noqa: B018


# The loader


def test_a_universe_has_its_own_modules_and_substitutes(tmp_path: Path) -> None:
    package = tmp_path / "sfd_stream"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("import threading\nfrom sfd_stream.two import value\n")
    (package / "two.py").write_text("value = 1\n")
    universe = Universe(tmp_path, p.substitutes(p.Randomness()))
    mutated = Universe(tmp_path, {}, edits=[Edit("two.py", "value = 1", "value = 2")])
    assert universe["one"].threading.Event is p.Event
    assert (universe["one"].value, mutated["one"].value) == (1, 2)
    assert mutated["one"].threading.Event is not p.Event
    with pytest.raises(EditError, match="0 times, not once"):
        Universe(tmp_path, {}, edits=[Edit("two.py", "value = 3", "")])


def test_points_let_another_task_run_between_two_statements(tmp_path: Path) -> None:
    package = tmp_path / "sfd_stream"
    (package / "worker").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "worker" / "__init__.py").write_text("")
    code = "def count(box):\n    before = box[0]\n    if before >= 0:\n        box[0] = before + 1\n"
    (package / "worker" / "one.py").write_text(code)

    def total(*, points: bool) -> int:
        box, count = [0], Universe(tmp_path, {}, points=points)["worker.one"].count
        run(lambda: [p.Thread(target=lambda: count(box)).start() for _ in range(20)], preempt=0.5)
        return box[0]

    assert total(points=False) == 20
    assert total(points=True) < 20


def test_the_whole_package_loads_on_substitutes() -> None:
    universe = Universe(ROOT, p.substitutes(p.Randomness()))
    assert universe["worker.worker"].Worker is not None
    assert universe["loop.runtime"].threading.Event is p.Event
