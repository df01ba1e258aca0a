"""The merger: publishes when a part has changed, again until it is acknowledged, and stops if another one publishes."""

from __future__ import annotations

from typing import Any

import pytest

from sfd_stream.errors import FencedError, NoSnapshotError, RefusedStateError
from sfd_stream.kafka.producer import Ticket
from sfd_stream.merge import REJOIN_S, MergePlan, Merger
from sfd_stream.observe.merge_status import MergeWatch
from sfd_stream.wire.snapshot_ids import EPOCH_MAX, SnapshotId
from sfd_stream.wire.snapshots import Snapshot, decode_message
from tests.support.watched import Clock
from tests.system.fakes import Diary
from tests.unit.loop.test_jobs import Here
from tests.unit.reader.made import rows_of, sketch_of, snapshot


class Reader:
    """A snapshot topic as a test fills it. A change is seen by the next `wait`."""

    topic, cluster_id, max_total_bytes = "sketches", "c", 2**30

    def __init__(self, *snapshots: Snapshot) -> None:
        self.snapshots = list(snapshots)
        self.ids: dict[str, SnapshotId] = {}
        self.changed = False

    def refresh(self, _: Any) -> bool:
        return True

    def wait(self, _: float) -> bool:
        changed, self.changed = self.changed, False
        return changed

    def held(self) -> list[Snapshot]:
        if not self.snapshots:
            raise NoSnapshotError("the topic has no snapshot")
        return self.snapshots


class Broker:
    """Acknowledges each message, unless a test gives an error."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.error: str | None = None

    def publish(self, _topic: str, _key: bytes, value: bytes, _headers: Any) -> Ticket:
        ticket = Ticket()
        self.taken.append(value)
        ticket.error, ticket.offset = self.error, len(self.taken) if self.error is None else None
        return ticket

    def flush(self, _: float) -> None:
        """Each message is answered at once."""


class Merging:
    """A merger of one topic of two partitions."""

    def __init__(self, *parts: Snapshot, own: SnapshotId | None = None) -> None:
        self.input, self.own, self.broker, self.clock, self.log = Reader(*parts), Reader(), Broker(), Clock(), Diary()
        if own is not None:
            self.own.ids[own.key] = own
        readers: Any = [self.input, self.own]
        sink: Any = self.broker
        self.merger = Merger(
            MergePlan("g", "world", every_s=0.5, republish_s=50.0),
            readers[:1],
            readers[1],
            sink,
            Here(),
            MergeWatch("g", "world", self.clock, lambda: 2_000.0),
            clock=self.clock,
            wall_clock=lambda: 2_000.0,
            log=self.log,
        )

    def turn(self, *, seconds: float = 0.0) -> int:
        """The number of messages after it."""
        self.clock.now += seconds
        self.merger.turn()
        return len(self.broker.taken)


def part(partition: int, number: int = 1) -> Snapshot:
    return snapshot(sketch_of(rows_of(partition + 10 * number)), partition, partitions=2, number=number)


def own_id(epoch: int, number: int = 1) -> SnapshotId:
    return SnapshotId("c", "g", "world", 0, epoch, number)


def test_a_merge_is_published_when_a_part_has_changed_and_again_when_that_is_due() -> None:
    one = Merging(part(0), part(1))
    one.merger.start()
    assert one.turn() == 1
    assert one.turn(seconds=49.0) == 1, "nothing has changed"
    assert one.turn(seconds=1.0) == 2
    assert one.broker.taken[0] == one.broker.taken[1]
    one.input.snapshots[0], one.input.changed = part(0, number=2), True
    assert one.turn() == 2, "the change is seen within this turn"
    assert one.turn() == 3
    assert one.broker.taken[2] != one.broker.taken[1]
    assert one.merger.published == 2


def test_a_merge_that_is_not_acknowledged_is_published_again() -> None:
    one = Merging(part(0), part(1))
    one.merger.start()
    one.broker.error = "MSG_TIMED_OUT"
    assert one.turn() == 1
    assert one.merger.published == 0
    assert one.log.said("merged snapshot publish failed, will retry")
    one.broker.error = None
    assert one.turn() == 2
    assert one.merger.published == 1


def test_before_the_first_part_it_waits_and_with_once_it_refuses() -> None:
    one = Merging()
    one.merger.start()
    assert one.turn() == 0
    with pytest.raises(NoSnapshotError, match="there is nothing to merge: no snapshot in sketches"):
        one.merger.publish_once()


def test_the_epoch_is_above_that_of_the_newest_message_and_a_higher_one_ends_it() -> None:
    one = Merging(part(0), part(1), own=own_id(epoch=4, number=9))
    one.merger.start()
    one.turn()
    assert one.merger.last is not None
    assert one.merger.last.order == (5, 1)
    one.own.ids[own_id(6).key] = own_id(6)
    with pytest.raises(FencedError, match="another merger publishes"):
        one.turn()


def test_an_epoch_that_nothing_can_exceed_is_refused() -> None:
    with pytest.raises(RefusedStateError, match="publish a null value under that key"):
        Merging(own=own_id(EPOCH_MAX)).merger.start()


def restarted(*parts: Snapshot) -> Merging:
    """After a merge of both partitions. Only `parts` can be read now."""
    before = Merging(part(0), part(1))
    before.merger.start()
    before.turn()
    last = decode_message(before.broker.taken[0])
    assert isinstance(last, Snapshot)
    one = Merging(*parts, own=last.id)
    one.own.snapshots = [last]
    one.merger.start()
    return one


def test_after_a_restart_it_waits_for_the_partitions_of_the_last_merge() -> None:
    """The object of the newest snapshot that it has read may be deleted, and the next snapshot not read yet."""
    one = restarted(part(0))
    assert one.turn() == 0
    assert one.log.said("snapshot fetch failed, will retry")
    one.input.snapshots.append(part(1, number=2))
    assert one.turn() == 1
    merged = decode_message(one.broker.taken[0])
    assert isinstance(merged, Snapshot)
    assert [of.id.partition for of in merged.parts] == [0, 1]


def test_after_a_restart_it_does_not_wait_for_ever_for_a_partition() -> None:
    one = restarted(part(0))
    assert one.turn(seconds=REJOIN_S - 1.0) == 0
    assert one.turn(seconds=1.0) == 1
    assert one.log.said("published, but incomplete")


def test_once_publishes_what_can_be_read_also_after_a_restart() -> None:
    """Somebody may have removed an input on purpose: it would fail at each call."""
    one = restarted(part(0))
    one.merger.publish_once()
    assert one.log.said("published, but incomplete")
