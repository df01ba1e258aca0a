"""A worker told to stop, stopped, or gone for a while: what it holds is durable, or another's, never both."""

from __future__ import annotations

import signal
import time

from tests.support.kafka import Broker
from tests.system.conftest import MakeRun, disk_or_s3_by_protocol
from tests.system.runs import Rows, Run, assert_counts, assert_same, wait_until
from tests.system.shown import all_shown, output_topic

SELDOM = {"checkpoint": {"every_rows": 10**9, "every_s": 3600}}


def test_sigterm_is_a_last_checkpoint_and_nothing_to_replay(kafka: Broker, make_run: MakeRun) -> None:
    rows, topic = Rows.random(6_000, partitions=2), kafka.create_topic(partitions=2)
    rows.produce(kafka, topic)
    run = make_run(kafka, topic, changes=SELDOM)
    worker = run.start()
    worker.until_logged("restored")
    time.sleep(1)  # some is read by now, and no checkpoint is due for an hour
    worker.signal(signal.SIGTERM)
    assert worker.wait(20) == 0, worker.log()
    assert "partition released" not in worker.log()
    read = sum(run.durable_offset(partition) for partition in range(2))
    assert read > 0
    again = run.inside()
    assert again.progress.records == sum(rows.ends()) - read, "nothing is read twice"
    for partition, matrix in enumerate(rows.matrices):
        assert_counts(run.state(partition), matrix)


def test_a_second_signal_ends_at_once_and_nothing_is_lost(kafka: Broker, make_run: MakeRun) -> None:
    rows, topic = Rows.random(6_000), kafka.create_topic()
    rows.produce(kafka, topic)
    run = make_run(kafka, topic, changes={"checkpoint": {"revoke_budget_s": 60}})
    for number in (signal.SIGTERM, signal.SIGINT):
        worker = run.start(slow_at="before-blobs:30")
        worker.until_logged("restored")
        wait_until(lambda at=worker: not at.alive or run.newest(0) is not None, "a claim")
        worker.signal(number)
        worker.until_logged("stopping")
        worker.signal(number)
        assert worker.wait(15) == 128 + number, worker.log()
    run.to_the_end()
    assert_counts(run.state(0), rows.matrices[0])


def last_of_epoch(run: Run, partition: int, epoch: int) -> int:
    """Number of the newest manifest of an epoch; 0 if they are pruned."""
    return max((each.number for each in run.manifests(partition) if each.epoch <= epoch), default=0)


def claim_after(run: Run, partition: int, epoch: int) -> int:
    """Number of the claim that ended an epoch; 0 if there is none yet. Ask before the next owner prunes its claim."""
    return min((each.number for each in run.manifests(partition) if each.epoch > epoch), default=0)


@disk_or_s3_by_protocol
def test_a_worker_stopped_past_its_session_writes_and_shows_nothing_more_and_comes_back_clean(
    kafka: Broker, make_run: MakeRun, store: str, protocol: str
) -> None:
    rows, topic = Rows.random(40_000, partitions=2), kafka.create_topic(partitions=2)
    messages = [rows.messages(partition) for partition in range(2)]
    shown = output_topic()
    run = make_run(kafka, topic, store=store, protocol=protocol, changes={"snapshot": {"topic": shown, "every_s": 0.2}})

    def produce(low: int, high: int) -> None:
        for partition in range(2):
            kafka.produce(topic, messages[partition][low:high], partition=partition)

    def durable(to: int) -> bool:
        return all(run.durable_offset(partition) >= to for partition in range(2))

    def newer(partition: int) -> list[bool]:
        """For each snapshot, whether it is of an owner after the zombie."""
        return [each.id.epoch > epochs[partition] for each in all_shown(kafka, shown, partition)]

    produce(0, 300)
    zombie = run.start()
    zombie.until_logged('"checkpoint"')
    wait_until(lambda: all(run.newest(partition) is not None for partition in range(2)), "a manifest of each partition")
    zombie.signal(signal.SIGSTOP)
    epochs = {partition: run.newest(partition).epoch for partition in range(2)}
    other = run.start()
    wait_until(lambda: all(claim_after(run, each, epochs[each]) for each in range(2)), "the other's claims")
    # A request that the zombie sent before it was stopped may reach the store at any time. It may fill a slot before
    # the claim, also one that was pruned since: nobody reads that. It never fills a slot after the claim.
    last = {each: claim_after(run, each, epochs[each]) - 1 for each in range(2)}
    produce(300, 600)
    wait_until(lambda: durable(600), "the other's checkpoints")
    wait_until(lambda: all(any(newer(partition)) for partition in range(2)), "the other's snapshots")
    zombie.signal(signal.SIGCONT)
    produce(600, 1000)
    wait_until(
        lambda: "lost" in zombie.log() or "fenced" in zombie.log() or "partition released" in zombie.log(), "its end"
    )
    wait_until(lambda: durable(1000), "the rest")
    for partition in range(2):
        assert last_of_epoch(run, partition, epochs[partition]) <= last[partition], "no manifest after the claim"
    assert zombie.alive, zombie.log()
    for worker in (zombie, other):
        worker.signal(signal.SIGTERM)
        assert worker.wait(20) == 0, worker.log()
    for partition in range(2):
        seen = all_shown(kafka, shown, partition)
        own = [each for each in seen if each.id.epoch <= epochs[partition]]
        assert all(each.id.number <= last[partition] for each in own), "nothing that was not durable by then"
    run.to_the_end()
    undisturbed = make_run(kafka, topic)
    undisturbed.to_the_end()
    for partition, matrix in enumerate(rows.matrices):
        assert_counts(run.state(partition), matrix)
        assert_same(run.state(partition), undisturbed.state(partition))
