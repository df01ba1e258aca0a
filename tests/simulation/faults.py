"""What can go wrong: one function for each kind of fault, called on the hub."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.judge import DEAD, GROUP, INPUT, MERGED, OUTPUT
from tests.simulation.scenario import Fault

if TYPE_CHECKING:
    from tests.simulation.run import Run
    from tests.simulation.workers import Worker

RESTART_S = 1.5
LEADERLESS_APART_S = 36.0
"""A topic that had no leader has one at least this long."""

LOADING_MOST_S = 8.0

DRAIN_S = 3.0
"""What a crashed worker has sent arrives within this time. A person who restores a backup waits for that."""


# Of the world


def broker_down(run: Run, fault: Fault) -> None:
    run.world.network.take_down(fault.seconds)


def broker_frozen(run: Run, fault: Fault) -> None:
    run.world.network.freeze(fault.seconds)


def no_leader(run: Run, fault: Fault) -> None:
    """One topic has no leader: nothing of it is read or written, and its offsets are not known.

    The tenths of its time choose the topic: .0 to .3 (and so on by fours) the input, dead letters, snapshots, merges.
    """
    now, topic = run.scheduler.now, (INPUT, DEAD, OUTPUT, MERGED)[int(fault.at_s * 10) % 4]
    until = run.world.broker.leaderless_until.get(topic, 0.0)
    if now > until + LEADERLESS_APART_S or not until:
        run.world.broker.leaderless_until[topic] = now + fault.seconds
        run.world.history.note("director", f"topic {topic} has no leader")


def slow_network(run: Run, fault: Fault) -> None:
    network = run.world.network
    network.slow = 0.3
    run.scheduler.call_later(fault.seconds, lambda: setattr(network, "slow", 0.0 if run.calm else 0.01))


def coordinator_loads(run: Run, fault: Fault) -> None:
    run.world.group(GROUP).loading_until = run.scheduler.now + min(fault.seconds, LOADING_MOST_S)


def rebalance(run: Run, _: Fault) -> None:
    run.world.group(GROUP).rebalance()


def log_retention(run: Run, _: Fault) -> None:
    run.remove_old_records()


def add_partition(run: Run, _: Fault) -> None:
    run.add_partition()


def store_down(run: Run, fault: Fault) -> None:
    faults = run.world.objects.faults
    faults.unavailable_until = max(faults.unavailable_until, run.scheduler.now + fault.seconds)


def store_flaky(run: Run, fault: Fault) -> None:
    faults = run.world.objects.faults
    faults.flaky = 0.2
    run.scheduler.call_later(fault.seconds, lambda: setattr(faults, "flaky", 0.0 if run.calm else run.scenario.flaky))


def store_slow(run: Run, fault: Fault) -> None:
    faults = run.world.objects.faults
    faults.slow = 0.5
    run.scheduler.call_later(fault.seconds, lambda: setattr(faults, "slow", 0.0 if run.calm else 0.01))


def store_full(run: Run, fault: Fault) -> None:
    """Nothing can be written, what exists can be read and deleted."""
    run.world.objects.faults.full_until = run.scheduler.now + fault.seconds


def store_read_only(run: Run, fault: Fault) -> None:
    """Writes are refused: a worker that has to write ends with exit code 5."""
    run.world.objects.faults.refused_until = run.scheduler.now + fault.seconds
    run.judge.explain(5, fault.seconds)


def damaged_object(run: Run, fault: Fault) -> None:
    """An object is torn or has other bytes, until it is restored: a worker that needs it ends with exit code 3."""
    restore = run.world.objects.damage()
    if restore is not None:
        run.judge.explain(3, fault.seconds)
        run.scheduler.call_later(fault.seconds, restore)


def restored_backup(run: Run, fault: Fault) -> None:
    """All workers crash, and the store is put back to what it was `seconds` before."""
    run.restore_backup(fault)


def truncated_log(run: Run, fault: Fault) -> None:
    """All workers crash, and a partition loses its last records; others take their offsets.

    A state that holds what was lost is refused with exit code 3, until a person resets it.
    """
    run.truncate(fault.target)


def recreated_topic(run: Run, _: Fault) -> None:
    """The input topic is deleted and created again: its states are refused with exit code 3."""
    run.recreate()


def merger_crash(run: Run, _: Fault) -> None:
    if run.merging is not None:
        run.merging.crash()


def merger_pause(run: Run, fault: Fault) -> None:
    if run.merging is not None:
        run.merging.pause(fault.seconds)


def lost_brokers(run: Run, _: Fault) -> None:
    """All clients that read a topic without a group get no records any more, and report no error."""
    for consumer in run.world.consumers:
        if not consumer.in_group:
            consumer.lose_brokers()


# Of one worker


def crash(run: Run, fault: Fault, worker: Worker) -> None:
    run.scheduler.crash(worker.process)
    run.scheduler.call_later(RESTART_S + fault.seconds, lambda: run.start(fault.target))


def pause(run: Run, fault: Fault, worker: Worker) -> None:
    run.scheduler.pause(worker.process)
    run.scheduler.call_later(fault.seconds, lambda: run.resume(worker.process.name))


def stop(_: Run, __: Fault, worker: Worker) -> None:
    worker.stop()


def cut_off_broker(run: Run, fault: Fault, worker: Worker) -> None:
    run.world.network.cut(worker.process, fault.seconds)


def no_answers(run: Run, fault: Fault, worker: Worker) -> None:
    """Its requests reach the broker, the answers do not reach it."""
    run.world.network.deafen(worker.process, fault.seconds)


def cut_off_store(run: Run, fault: Fault, worker: Worker) -> None:
    run.world.objects.faults.cut_until[worker.process.name] = run.scheduler.now + fault.seconds


def expel(run: Run, _: Fault, worker: Worker) -> None:
    run.world.group(GROUP).expel(worker.process.name)


def clock_jump(_: Run, fault: Fault, worker: Worker) -> None:
    worker.process.clock_jump_s += fault.seconds * 1000 - 5000


OF_THE_WORLD: dict[str, Callable[[Run, Fault], None]] = {
    "broker down": broker_down,
    "broker frozen": broker_frozen,
    "no leader": no_leader,
    "slow network": slow_network,
    "coordinator loads": coordinator_loads,
    "rebalance": rebalance,
    "log retention": log_retention,
    "add partition": add_partition,
    "store down": store_down,
    "store flaky": store_flaky,
    "store slow": store_slow,
    "store full": store_full,
    "store read-only": store_read_only,
    "damaged object": damaged_object,
    "restored backup": restored_backup,
    "truncated log": truncated_log,
    "recreated topic": recreated_topic,
    "merger crash": merger_crash,
    "merger pause": merger_pause,
    "lost brokers": lost_brokers,
}

OF_A_WORKER: dict[str, Callable[[Run, Fault, Worker], None]] = {
    "crash": crash,
    "pause": pause,
    "stop": stop,
    "cut off broker": cut_off_broker,
    "no answers": no_answers,
    "cut off store": cut_off_store,
    "expel": expel,
    "clock jump": clock_jump,
}

STALL = "stall"
"""The thread that reaches the named point is not scheduled for a time; the rest of its process runs."""


def apply(run: Run, fault: Fault, worker: Worker | None) -> None:
    if fault.kind in OF_THE_WORLD:
        OF_THE_WORLD[fault.kind](run, fault)
    elif worker is not None and worker.process.alive:
        OF_A_WORKER[fault.kind](run, fault, worker)
