"""The source's contract, on the real broker and on the built-in one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from sfd_stream.errors import BrokerRefusedError, RefusedStateError, SettingsError
from sfd_stream.kafka.records import Start
from sfd_stream.kafka.source import Source
from tests.unit.kafka.conftest import PROTOCOLS, Diary

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tests.support.kafka import Broker
    from tests.support.kafka_fixtures import PrivateBrokers
    from tests.unit.kafka.conftest import Reader

    Read = Callable[..., Reader]

# The built-in broker waits three seconds in every classic rebalance: there the new protocol must do.
every_protocol = pytest.mark.parametrize(
    ("broker", "protocol"),
    [
        ("built-in", "kip-848"),
        *(pytest.param("real", name, marks=pytest.mark.real_kafka) for name in sorted(PROTOCOLS)),
    ],
    indirect=["broker"],
)


def fill(broker: Broker, topic: str, count: int, partitions: int = 4) -> None:
    for partition in range(partitions):
        broker.produce(topic, [b"%d/%d" % (partition, n) for n in range(count)], partition=partition)


def expected(partition: int, start: int, end: int) -> list[tuple[int, bytes | None]]:
    return [(n, b"%d/%d" % (partition, n)) for n in range(start, end)]


@every_protocol
def test_records_come_in_order_from_the_offsets_that_the_listener_gave(
    broker: Broker, read: Read, protocol: str
) -> None:
    topic = broker.create_topic(partitions=4)
    fill(broker, topic, 50)
    reader = read(broker, topic, {0: Start(7), 1: Start(0), 2: Start(49), 3: Start(50)}, protocol=protocol)
    reader.until(lambda: reader.count >= 43 + 50 + 1)
    reader.poll(0.3)
    assert reader.seen == {0: expected(0, 7, 50), 1: expected(1, 0, 50), 2: expected(2, 49, 50)}
    assert [reader.source.position(p) for p in range(4)] == [50, 50, 50, 50]


@every_protocol
def test_a_held_partition_is_read_only_once_it_is_begun(broker: Broker, read: Read, protocol: str) -> None:
    topic = broker.create_topic(partitions=4)
    fill(broker, topic, 20)
    reader = read(broker, topic, {2: None}, protocol=protocol)
    reader.until(lambda: reader.count >= 60)
    reader.poll(0.3)
    assert 2 not in reader.seen
    assert reader.source.assigned == {0, 1, 2, 3}
    reader.source.begin(2, Start(5))
    reader.until(lambda: reader.count >= 75)
    reader.poll(0.3)
    assert {p: reader.seen[p] for p in range(4)} == {p: expected(p, 5 if p == 2 else 0, 20) for p in range(4)}


@every_protocol
def test_partitions_move_between_two_members_and_none_is_read_twice_or_by_nobody(
    broker: Broker, read: Read, protocol: str
) -> None:
    topic = broker.create_topic(partitions=4)
    first = read(broker, topic, protocol=protocol)
    first.until(lambda: len(first.diary.owned) == 4, "the first owns all")
    second = read(broker, topic, protocol=protocol)
    first.until(lambda: len(second.diary.owned) == 2 and len(first.diary.owned) == 2, "half each", others=[second])
    assert first.diary.owned | second.diary.owned == {0, 1, 2, 3}
    assert first.source.assigned == first.diary.owned
    fill(broker, topic, 30)
    first.until(lambda: first.count + second.count >= 120, "all read", others=[second])
    for reader in (first, second):
        assert {p: reader.seen[p] for p in reader.diary.owned} == {p: expected(p, 0, 30) for p in reader.diary.owned}
        assert set(reader.seen) == reader.diary.owned
    moved = set(second.diary.owned)
    assert second.source.close(10)
    assert second.diary.owned == set()
    first.until(lambda: len(first.diary.owned) == 4, "the first owns all again")
    # begun at 0 again by this listener: replayed whole, and in order
    first.until(lambda: all(first.offsets(p)[-30:] == list(range(30)) for p in moved), "the replay")


@every_protocol
def test_a_member_without_partitions_keeps_polling(broker: Broker, read: Read, protocol: str) -> None:
    topic = broker.create_topic(partitions=4)
    readers = [read(broker, topic, protocol=protocol) for _ in range(5)]
    readers[0].until(
        lambda: sorted(len(r.diary.owned) for r in readers) == [0, 1, 1, 1, 1], "one each", others=readers[1:]
    )
    idle = next(r for r in readers if not r.diary.owned)
    assert idle.poll() == []
    assert idle.source.assigned == frozenset()


class Resuming(Diary):
    """Begins where the last owner stood, as checkpoints let a worker do."""

    def __init__(self, progress: dict[int, int]) -> None:
        super().__init__()
        self.progress = progress

    def on_assign(self, partitions: Collection[int]) -> dict[int, Start | None]:
        super().on_assign(partitions)
        return {p: Start(self.progress.get(p, 0)) for p in partitions}


@every_protocol
def test_every_record_is_read_once_while_members_come_and_go_under_load(
    broker: Broker, read: Read, protocol: str
) -> None:
    topic = broker.create_topic(partitions=4)
    fill(broker, topic, 3000)
    progress: dict[int, int] = {}
    seen: list[tuple[int, int]] = []

    def turn(readers: list[Reader]) -> None:
        for reader in readers:
            for batch in reader.source.poll(40, 0.02):
                assert batch.first_offset == progress.get(batch.partition, 0)
                seen.extend((batch.partition, offset) for offset in batch.offsets)
                progress[batch.partition] = batch.next_offset

    def member() -> Reader:
        return read(broker, topic, protocol=protocol, diary=Resuming(progress))

    steady = member()
    while len(seen) < 1000:
        turn([steady])
    for _ in range(2):
        guest = member()
        deadline = time.monotonic() + 30
        while not guest.diary.owned and time.monotonic() < deadline:
            turn([steady, guest])
        turn([guest])
        assert guest.source.close(10)
    while len(seen) < 12_000:
        turn([steady])
    assert sorted(seen) == [(p, n) for p in range(4) for n in range(3000)]


class BreaksAtAssign(Diary):
    def on_assign(self, partitions: Collection[int]) -> dict[int, Start | None]:
        raise LookupError(f"the checkpoint of {partitions} is not there")


@every_protocol
def test_an_exception_in_on_assign_leaves_poll_as_it_is_and_nothing_is_read_after_it(
    broker: Broker, read: Read, protocol: str
) -> None:
    topic = broker.create_topic(partitions=4)
    fill(broker, topic, 100)
    reader = read(broker, topic, protocol=protocol, diary=BreaksAtAssign())
    with pytest.raises(LookupError, match=r"the checkpoint of .* is not there"):
        reader.until(lambda: False)
    for _ in range(3):
        with pytest.raises(LookupError):
            reader.poll(0.5)
    assert reader.count == 0


@every_protocol
def test_an_exception_in_on_revoke_leaves_poll_as_it_is(broker: Broker, read: Read, protocol: str) -> None:
    topic = broker.create_topic(partitions=4)
    reader = read(broker, topic, protocol=protocol)
    reader.until(lambda: len(reader.diary.owned) == 4)

    def break_it(_: Collection[int]) -> None:
        raise LookupError("the store is gone")

    reader.diary.in_revoke = break_it
    reader.source.rejoin()
    with pytest.raises(LookupError, match="the store is gone"):
        reader.until(lambda: False)


def test_a_paused_partition_gives_nothing_and_goes_on_where_it_was(broker: Broker, read: Read) -> None:
    topic = broker.create_topic(partitions=4)
    fill(broker, topic, 10)
    reader = read(broker, topic)
    reader.until(lambda: reader.count == 40)
    reader.source.pause([1, 3])
    fill(broker, topic, 10)
    reader.until(lambda: reader.count == 60)
    reader.poll(0.3)
    assert {p: len(reader.seen[p]) for p in range(4)} == {0: 20, 1: 10, 2: 20, 3: 10}
    assert reader.source.paused == {1, 3}
    reader.source.resume([1, 3])
    reader.until(lambda: reader.count == 80)
    assert all(reader.offsets(p) == list(range(20)) for p in range(4))


def test_a_partition_paused_amid_prefetched_records_loses_and_doubles_none(broker: Broker, read: Read) -> None:
    topic = broker.create_topic(partitions=4)
    fill(broker, topic, 500)
    reader = read(broker, topic)
    reader.until(lambda: reader.count > 0)
    for _ in range(40):
        reader.source.pause([0, 1])
        reader.poll(0.01, max_records=7)
        reader.source.resume([0, 1])
        reader.poll(0.02, max_records=11)
    reader.until(lambda: reader.count >= 2000)
    assert all(reader.offsets(p) == list(range(500)) for p in range(4))


@every_protocol
def test_a_commit_is_answered_and_read_back_with_its_metadata(broker: Broker, read: Read, protocol: str) -> None:
    topic = broker.create_topic(partitions=4)
    fill(broker, topic, 10)
    reader = read(broker, topic, protocol=protocol)
    reader.until(lambda: reader.count == 40)
    reader.source.commit({0: 4, 2: 10}, metadata="3-17")
    reader.until(lambda: reader.source.last_committed == {0: 4, 2: 10}, "the commit")
    assert reader.source.acknowledged_commits == {0: (4, "3-17"), 2: (10, "3-17")}
    found = reader.source.committed([0, 1, 2], 10)
    assert found[1] is None
    assert (found[0].offset, found[2].offset) == (4, 10)  # type: ignore[union-attr]
    assert found[0].metadata == "3-17"  # type: ignore[union-attr]


@every_protocol
def test_a_commit_made_in_on_revoke_reaches_the_broker_and_one_made_later_is_not_sent(
    broker: Broker, read: Read, protocol: str
) -> None:
    topic = broker.create_topic(partitions=4)
    fill(broker, topic, 10)
    first = read(broker, topic, protocol=protocol)
    first.until(lambda: first.count == 40)
    first.diary.in_revoke = lambda partitions: first.source.commit(dict.fromkeys(partitions, 6))
    second = read(broker, topic, protocol=protocol)
    first.until(lambda: len(second.diary.owned) == 2, "the second has its share", others=[second])
    moved = sorted(second.diary.owned)
    assert {p: c.offset for p, c in second.source.committed(moved, 10).items() if c} == dict.fromkeys(moved, 6)
    first.source.commit(dict.fromkeys(moved, 9))
    first.poll(0.1)
    assert {p: c.offset for p, c in second.source.committed(moved, 10).items() if c} == dict.fromkeys(moved, 6)


@every_protocol
def test_commits_made_while_closing_reach_the_broker(broker: Broker, read: Read, protocol: str) -> None:
    topic = broker.create_topic(partitions=4)
    fill(broker, topic, 10)
    reader = read(broker, topic, protocol=protocol)
    reader.until(lambda: reader.count == 40)
    reader.diary.in_revoke = lambda partitions: reader.source.commit(dict.fromkeys(partitions, 10))
    assert reader.source.close(10)
    assert reader.diary.events[-1] == ("revoke", (0, 1, 2, 3))
    assert reader.source.last_committed == {}
    other = read(broker, topic, protocol=protocol)
    other.until(lambda: len(other.diary.owned) == 4)
    assert {p: c.offset for p, c in other.source.committed(range(4), 10).items() if c} == dict.fromkeys(range(4), 10)


@every_protocol
def test_one_who_rejoins_gives_up_its_partitions_and_gets_them_anew(broker: Broker, read: Read, protocol: str) -> None:
    topic = broker.create_topic(partitions=4)
    fill(broker, topic, 10)
    reader = read(broker, topic, protocol=protocol)
    reader.until(lambda: reader.count == 40)
    reader.source.rejoin()
    reader.until(lambda: len([e for e in reader.diary.events if e[0] == "assign" and e[1]]) == 2, "the rejoin")
    kinds = [kind for kind, partitions in reader.diary.events if partitions]
    assert kinds == ["assign", "revoke", "assign"]
    reader.until(lambda: reader.count == 80, "the replay from the start")
    assert all(reader.offsets(p) == [*range(10), *range(10)] for p in range(4))


def test_a_record_larger_than_the_client_takes_names_the_setting(kafka: Broker, read: Read) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [b"x" * 100_000])
    small = {"receive.message.max.bytes": 20_000, "fetch.max.bytes": 10_000, "max.partition.fetch.bytes": 10_000}
    reader = read(kafka, topic, {0: Start(0)}, properties={**small, "message.max.bytes": 10_000, "log_level": 0})
    with pytest.raises(BrokerRefusedError, match=r"raise kafka\.receive\.message\.max\.bytes") as refused:
        reader.until(lambda: False)
    assert "damaged" not in str(refused.value)


@pytest.mark.parametrize("start", [3, 999])
@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_an_offset_outside_the_log_refuses(kafka: Broker, read: Read, protocol: str, start: int) -> None:
    topic = kafka.create_topic(partitions=2)
    fill(kafka, topic, 20, partitions=2)
    kafka.delete_records(topic, 1, 5)
    reader = read(kafka, topic, {1: Start(start)}, protocol=protocol)
    with pytest.raises(RefusedStateError, match=rf"offset {start} of {topic}/1 is not in the log.*checkpoint reset"):
        reader.until(lambda: False)
    with pytest.raises(RefusedStateError):
        reader.poll()


def test_watermarks_and_ends_are_the_logs(kafka: Broker, read: Read) -> None:
    topic = kafka.create_topic(partitions=2)
    fill(kafka, topic, 20, partitions=2)
    kafka.delete_records(topic, 1, 5)
    source = read(kafka, topic).source
    assert source.watermarks(1, 10) == (5, 20)
    assert source.end_offsets([0, 1], 10) == {0: 20, 1: 20}
    assert source.first_offsets([0, 1], 10) == {0: 0, 1: 5}
    assert source.partition_count(10) == 2


def test_a_topic_made_again_has_another_id_and_the_cluster_keeps_its_own(kafka: Broker, read: Read) -> None:
    topic = kafka.create_topic()
    source = read(kafka, topic).source
    before, cluster = source.topic_id(10), source.cluster_id(10)
    assert before
    kafka.delete_topic(topic)
    kafka.create_topic(name=topic)
    assert source.topic_id(10) not in (before, None)
    assert source.cluster_id(10) == cluster


def test_the_built_in_broker_has_no_topic_ids(built_in: Broker, read: Read) -> None:
    source = read(built_in, built_in.create_topic()).source
    assert source.topic_id(10) is None
    assert source.cluster_id(10)


def test_a_topic_that_is_not_there_refuses_after_its_patience(kafka: Broker, read: Read) -> None:
    reader = read(kafka, "no-such-topic", unknown_topic_s=0.5)
    with pytest.raises(BrokerRefusedError, match=r"topic no-such-topic does not exist .* create it"):
        reader.until(lambda: False)
    with pytest.raises(BrokerRefusedError, match="no-such-topic"):
        reader.source.partition_count(10)


def test_a_topic_deleted_while_it_is_read_refuses_after_its_patience(kafka: Broker, read: Read) -> None:
    topic = kafka.create_topic(partitions=2)
    fill(kafka, topic, 10, partitions=2)
    quick = {"topic.metadata.refresh.interval.ms": 500}
    reader = read(kafka, topic, unknown_topic_s=0.5, properties=quick)
    reader.until(lambda: reader.count == 20)
    kafka.delete_topic(topic)
    with pytest.raises(BrokerRefusedError, match=f"topic {topic} does not exist"):
        reader.until(lambda: False)


def test_new_partitions_are_assigned_while_running(kafka: Broker, read: Read) -> None:
    topic = kafka.create_topic(partitions=1)
    reader = read(kafka, topic, properties={"topic.metadata.refresh.interval.ms": 300})
    reader.until(lambda: reader.diary.owned == {0})
    kafka.add_partitions(topic, 3)
    fill(kafka, topic, 10, partitions=3)
    reader.until(lambda: reader.count == 30)
    assert all(reader.offsets(p) == list(range(10)) for p in range(3))


def test_a_member_that_polls_too_late_is_told_that_it_lost_everything_once(kafka: Broker, read: Read) -> None:
    topic = kafka.create_topic(partitions=2)
    fill(kafka, topic, 10, partitions=2)
    late = {"max.poll.interval.ms": 1500, "session.timeout.ms": 1000, "heartbeat.interval.ms": 200}
    reader = read(kafka, topic, properties=late)
    reader.until(lambda: reader.count == 20)
    time.sleep(2.5)
    reader.until(lambda: ("lost", (0, 1)) in reader.diary.events, "the loss")
    reader.until(lambda: reader.count == 40, "the return")
    told = [event for event in reader.diary.events if event[1]]
    assert told == [("assign", (0, 1)), ("lost", (0, 1)), ("assign", (0, 1))]


@pytest.mark.slow
def test_a_broker_killed_and_restarted_is_waited_for_and_nothing_is_lost_or_doubled(
    private_broker: PrivateBrokers, read: Read
) -> None:
    broker = private_broker()
    topic = broker.create_topic(partitions=2)
    fill(broker, topic, 100, partitions=2)
    # A session that outlasts the broker's absence: otherwise the partitions are lost, and begun again.
    patient = {"reconnect.backoff.max.ms": 300, "session.timeout.ms": 45_000}
    reader = read(broker, topic, properties=patient)
    reader.until(lambda: reader.count == 200)
    broker.kill()
    reader.until(lambda: reader.source.unavailable_s is not None, "the broker is away")
    assert reader.source.outage_words
    with pytest.raises(TimeoutError, match="did not answer within"):
        reader.source.watermarks(0, 0.3)
    broker.restart()
    reader.until(lambda: reader.source.unavailable_s is None, "the broker is back, though no record came")
    fill(broker, topic, 100, partitions=2)
    reader.until(lambda: reader.count >= 400)
    assert all(reader.offsets(p) == list(range(200)) for p in range(2))
    reader.source.commit({0: 200})
    reader.until(lambda: reader.source.last_committed == {0: 200}, "the commit")


def test_position_passes_a_control_record_at_the_end(kafka: Broker, read: Read) -> None:
    topic = kafka.create_topic(partitions=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"one")
    producer.commit_transaction(30)
    reader = read(kafka, topic)
    reader.until(lambda: reader.count == 1)
    end = 2  # the record and the end of the transaction, which is written a moment after its commit
    reader.until(lambda: reader.source.end_offsets([0], 10) == {0: end})
    reader.until(lambda: reader.source.position(0) == end, "the end")


def test_closing_is_bounded_when_the_broker_is_gone(private_broker: PrivateBrokers, read: Read) -> None:
    broker = private_broker()
    topic = broker.create_topic(partitions=2)
    reader = read(broker, topic)
    reader.until(lambda: len(reader.diary.owned) == 2)
    reader.diary.in_revoke = lambda partitions: reader.source.commit(dict.fromkeys(partitions, 0))
    broker.kill()
    begun = time.monotonic()
    reader.source.close(2)
    assert time.monotonic() - begun < 30  # without the bound: the session's timeout and more
    assert reader.diary.owned == set()


def test_what_librdkafka_does_not_know_is_a_settings_error_without_the_secret(built_in: Broker) -> None:
    properties = {"bootstrap.servers": built_in.bootstrap, "group.id": "g", "sasl.pasword": "hunter2"}
    with pytest.raises(SettingsError, match=r"sasl\.pasword") as caught:
        Source(properties, "t")
    assert "hunter2" not in str(caught.value)
