"""Workers that die or sleep around a publication: no state is missing from the topic, none contradicts another.

Idempotent delivery: a state may be shown twice, with the same bytes under the same id; a zombie may put an older one on
top; readers that saw the newer one drop it, and the next publication repairs it for others. Transactional delivery:
a reader of committed records sees each state once, in order, and nothing of a zombie.
"""

from __future__ import annotations

import itertools
import signal
from typing import Any

import pytest

from sfd_stream.cli.build import store_of
from sfd_stream.reader.reader import SnapshotReader
from sfd_stream.wire.snapshots import Snapshot, decode_message
from tests.support.kafka import Broker
from tests.support.slow import smoke_first
from tests.system.conftest import MakeRun
from tests.system.killable import WITHIN_PUBLISH
from tests.system.runs import Rows, Run, WorkerProcess, assert_counts, wait_until
from tests.system.shown import COMPACTED_SOON, Shown, all_shown, compact, latest, order_of, output_topic, parts_of

POINTS = {
    "idempotent": ("after-letters", "after-manifest", "before-publish", "after-publish", "after-commit"),
    "transactional": (
        "after-letters",
        "after-manifest",
        "before-publish",
        "before-transaction",
        "after-offsets",
        "before-end",
        "after-publish",
    ),
}
SMOKE = [("idempotent", "after-manifest"), ("transactional", "after-offsets"), ("transactional", "before-end")]
ALL = [(delivery, point) for delivery, points in POINTS.items() for point in points]
CASES = smoke_first([*SMOKE, *(case for case in ALL if case not in SMOKE)], len(SMOKE))
SHORT = {"transaction.timeout.ms": 2000, "message.timeout.ms": 2000}
"""Transactions that nobody ends are ended soon."""


def die_under_load(run: Run, rows: Rows, point: str, **snapshot: Any) -> None:
    """Rows keep coming until the worker is dead at its sixth passing, of two partitions; then the rest."""
    parts = parts_of(rows.messages(0), 60)
    worker = run.start(die_at=point, nth=6, snapshot=snapshot)
    while worker.alive and parts:
        run.broker.produce(run.topic, parts.pop(0))
        wait_until(lambda: not worker.alive or lagging(run) < 20, "reading")
    assert worker.wait() == -signal.SIGKILL, worker.log()
    for part in parts:
        run.broker.produce(run.topic, part)


def lagging(run: Run) -> int:
    """Messages that are not durable yet."""
    return run.broker.end_offset(run.topic) - run.durable_offset(0)


def due_of(run: Run) -> tuple[tuple[int, int], bytes]:
    """The last snapshot that the store knows to be due: its id and its bytes."""
    newest = run.newest(0)
    assert newest is not None
    assert newest.due is not None
    return order_of(newest.due.id), store_of(run.settings()).get(newest.due.blob.key)


def assert_consistent(shown: list[Shown], delivery: str) -> None:
    """In the order of the log ids never fall, and equal ids have equal bytes; or there are no equal ids at all."""
    for before, after in itertools.pairwise(shown):
        assert before.order <= after.order
        if before.order == after.order:
            assert (delivery, before.value) == ("idempotent", after.value)


@pytest.mark.parametrize(("delivery", "point"), CASES)
def test_killed_anywhere_the_next_owner_shows_the_same_bytes_under_the_same_id(
    kafka: Broker, make_run: MakeRun, delivery: str, point: str
) -> None:
    rows, topic, shows = Rows.random(2_400), kafka.create_topic(partitions=2), output_topic()
    run = make_run(kafka, topic, changes={"kafka": SHORT})
    die_under_load(run, rows, point, topic=shows, every_s=0.1, delivery=delivery)
    due, data = due_of(run)
    run.inside(snapshot={"topic": shows, "delivery": delivery})
    shown = all_shown(kafka, shows, 0)
    for partition in range(2):
        assert_consistent(all_shown(kafka, shows, partition), delivery)
    assert data in [each.value for each in shown if each.order == due]
    assert [each.sketch for each in latest(run, shows)] == [run.state(partition).sketch() for partition in range(2)]
    assert_counts(run.state(0), rows.matrices[0])


@pytest.mark.parametrize("protocol", ["cooperative", "kip-848"])
@pytest.mark.parametrize("point", smoke_first(["before-transaction", "after-offsets", "before-end"]))
def test_nothing_of_a_zombie_s_transaction_is_seen(kafka: Broker, make_run: MakeRun, protocol: str, point: str) -> None:
    rows, topic, shows = Rows.random(1_200), kafka.create_topic(), output_topic()
    messages = rows.messages(0)
    kafka.produce(topic, messages[:20])
    snapshot = {"topic": shows, "every_s": 0.2, "delivery": "transactional"}
    run = make_run(kafka, topic, protocol=protocol, changes={"kafka": SHORT, "snapshot": snapshot})
    zombie = run.start(stop_at=point, nth=2)  # the first is the claim's
    assert zombie.marker is not None
    wait_until(zombie.marker.exists, "the zombie's sleep")
    stale, _ = due_of(run)
    other = run.start()
    kafka.produce(topic, messages[20:])
    wait_until(lambda: latest_offset(run, shows) == 60, "the newer one")
    before = [each.order for each in all_shown(kafka, shows)]
    assert before.count(stale) == 1, "its state is shown by the next owner"
    zombie.signal(signal.SIGCONT)
    zombie.until_logged("lost")
    kafka.produce(topic, messages[:20])
    wait_until(lambda: latest_offset(run, shows) == 80, "what came later")
    for worker in (zombie, other):
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log()
    orders = [each.order for each in all_shown(kafka, shows)]
    assert orders == sorted(set(orders))
    assert orders[: len(before)] == before


def latest_offset(run: Run, shows: str) -> int:
    return max((decode_message(each.value).next_offset for each in all_shown(run.broker, shows)), default=0)


def until_stale_is_on_top(run: Run, shows: str, reader: SnapshotReader) -> tuple[list[WorkerProcess], Snapshot]:
    """A worker sleeps while it publishes a snapshot, another publishes a newer one, then the first goes on.

    Returns both workers, and the newer snapshot, which `reader` has seen.
    """
    messages = Rows.random(1_200).messages(0)
    run.broker.produce(run.topic, messages[:10])
    zombie = run.start(stop_at=WITHIN_PUBLISH, nth=2)
    assert zombie.marker is not None
    wait_until(lambda: all_shown(run.broker, shows), "the first one")
    run.broker.produce(run.topic, messages[10:20])
    wait_until(zombie.marker.exists, "the zombie's sleep")
    stale, _ = due_of(run)
    other = run.start()
    run.broker.produce(run.topic, messages[20:])
    wait_until(lambda: reader.latest()[0].next_offset == 60, "the newer one")
    (seen,) = reader.latest()
    zombie.signal(signal.SIGCONT)
    wait_until(lambda: late(all_shown(run.broker, shows), stale), "the stale one on top")
    return [zombie, other], seen


def end(workers: list[WorkerProcess]) -> None:
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log()


def test_a_zombie_s_stale_snapshot_is_dropped_by_who_saw_the_newer_and_healed_for_others(
    kafka: Broker, make_run: MakeRun
) -> None:
    shows = kafka.create_topic(config={"cleanup.policy": "compact"})
    snapshot = {"topic": shows, "every_s": 0.2, "republish_s": 2.0}
    run = make_run(kafka, kafka.create_topic(), changes={"snapshot": snapshot})
    with SnapshotReader(kafka.bootstrap, shows, log_level=0) as reader:
        workers, seen = until_stale_is_on_top(run, shows, reader)
        wait_until(lambda: all_shown(kafka, shows)[-1].order == seen.id.order, "the newest on top again")
        assert reader.latest()[0].id == seen.id, "who saw the newer keeps it"
    assert latest(run, shows)[0].id == seen.id, "a cold reader has it"
    end(workers)


def test_after_compaction_too_the_next_publication_heals_what_a_zombie_left(kafka: Broker, make_run: MakeRun) -> None:
    """The broker throws the newer one away: a reader that begins now sees the stale one, until the next comes."""
    shows = kafka.create_topic(config={"cleanup.policy": "compact", **COMPACTED_SOON})
    snapshot = {"topic": shows, "every_s": 0.2, "republish_s": 3600.0}
    run = make_run(kafka, kafka.create_topic(), changes={"snapshot": snapshot})
    with SnapshotReader(kafka.bootstrap, shows, log_level=0) as reader:
        workers, seen = until_stale_is_on_top(run, shows, reader)
        stale = all_shown(kafka, shows)[-1].order
        compact(kafka, shows)
        wait_until(lambda: [each.order for each in all_shown(kafka, shows)] == [stale], "compaction")
        assert latest(run, shows)[0].id.order == stale < seen.id.order
        assert reader.latest()[0].id == seen.id, "who saw the newer keeps it"
        kafka.produce(run.topic, Rows.random(400).messages(0))
        wait_until(lambda: latest(run, shows)[0].next_offset == 80, "the next publication")
        wait_until(lambda: reader.latest()[0].next_offset == 80, "the same for who saw the newer")
        newest = reader.latest()[0].id.order
    compact(kafka, shows)
    wait_until(lambda: [each.order for each in all_shown(kafka, shows)] == [newest], "compaction again")
    (healed,) = latest(run, shows)
    assert (healed.id.order, healed.next_offset, healed.sketch.rows) == (newest, 80, 1_600)
    end(workers)


def late(shown: list[Shown], stale: tuple[int, int]) -> bool:
    """Whether `stale` came after something newer."""
    places = [place for place, each in enumerate(shown) if each.order == stale]
    return bool(places) and any(each.order > stale for each in shown[: places[-1]])
