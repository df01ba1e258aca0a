"""The reader on brokers: what it gives is the newest, whole, and never goes back."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgpack
import pytest
from confluent_kafka import Producer

from sfd_stream import SnapshotReader
from sfd_stream.errors import (
    BrokerRefusedError,
    ChecksumError,
    FormatError,
    NewerFormatError,
    NoSnapshotError,
    ObjectMissingError,
    UnmergeableError,
)
from sfd_stream.storage.open import open_store
from sfd_stream.wire import snapshots as wire
from sfd_stream.wire.snapshots import encode_snapshot, message_of, reference_to
from tests.unit.reader.made import holds, message, publish, rows_of, sketch_of, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kafka import Broker
    from tests.support.kafka_fixtures import PrivateBrokers


def reader_of(broker: Broker, topic: str, **options: Any) -> SnapshotReader:
    return SnapshotReader(broker.bootstrap, topic, wall_clock=lambda: 1060.0, **options)


def four(d: int = 12) -> list[Any]:
    return [rows_of(seed, d=d) for seed in range(4)]


def test_three_lines_are_enough(broker: Broker) -> None:
    topic = broker.create_topic(partitions=1)
    matrices = four()
    publish(broker, topic, [message(snapshot(sketch_of(A), p, partitions=4)) for p, A in enumerate(matrices)])
    with reader_of(broker, topic) as reader:
        merged = reader.merged()
    assert merged.components(5).shape == (5, 12)
    assert holds(matrices, merged.sketch)
    assert merged.complete
    assert merged.partitions == ("rows/0", "rows/1", "rows/2", "rows/3")
    assert set(merged.ages_s.values()) == {60.0}


def test_five_of_eight_do_not_look_whole(kafka: Broker) -> None:
    topic = kafka.create_topic()
    held = (0, 2, 3, 4, 7)
    publish(kafka, topic, [message(snapshot(sketch_of(rows_of(p)), p, partitions=8)) for p in held])
    with reader_of(kafka, topic) as reader:
        merged = reader.merged()
    assert not merged.complete
    assert merged.missing == ("rows/1", "rows/5", "rows/6")
    assert "INCOMPLETE: 5 of 8 partitions, no rows/1, rows/5, rows/6" in repr(merged)


def test_partitions_added_to_the_input_topic_are_missed_until_they_publish(kafka: Broker) -> None:
    topic = kafka.create_topic()
    with reader_of(kafka, topic) as reader:
        publish(kafka, topic, [message(snapshot(sketch_of(rows_of(0)), 0, partitions=1))])
        assert reader.merged().complete
        publish(kafka, topic, [message(snapshot(sketch_of(rows_of(0)), 0, partitions=2, number=2))])
        assert reader.merged().missing == ("rows/1",)


def test_a_stale_snapshot_delivered_late_is_ignored_by_one_who_saw_the_newer(kafka: Broker) -> None:
    topic = kafka.create_topic()
    stale, newer = (message(snapshot(sketch_of(rows_of(n)), epoch=n, number=5)) for n in (1, 2))
    with reader_of(kafka, topic) as reader:
        publish(kafka, topic, [newer])
        assert reader.latest()[0].id.epoch == 2
        publish(kafka, topic, [stale])
        assert reader.latest()[0].id.epoch == 2
        assert not reader.refresh()


def test_what_a_cold_reader_sees_of_a_stale_snapshot_is_healed_by_the_next(kafka: Broker) -> None:
    """Compaction keeps the last written: until the newest is published again a cold reader can only see that."""
    topic = kafka.create_topic()
    stale, newer = (message(snapshot(sketch_of(rows_of(n)), epoch=n, number=5)) for n in (1, 2))
    publish(kafka, topic, [stale])
    with reader_of(kafka, topic) as reader:
        assert reader.latest()[0].id.epoch == 1
        publish(kafka, topic, [newer])
        assert reader.latest()[0].id.epoch == 2


def test_watch_gives_each_change_and_no_stale_one(kafka: Broker) -> None:
    topic = kafka.create_topic()
    made = [message(snapshot(sketch_of(rows_of(n, n=10 * n)), epoch=n, number=1)) for n in (1, 2, 3)]
    with reader_of(kafka, topic) as reader:
        watching = reader.watch(every_s=0.2)
        publish(kafka, topic, [made[0]])
        assert next(watching).rows == 10
        publish(kafka, topic, [made[2], made[1]])
        assert next(watching).rows == 30
        publish(kafka, topic, [made[0], message(snapshot(sketch_of(rows_of(4, n=40)), epoch=4))])
        assert next(watching).rows == 40


def test_watch_can_tick_so_that_ages_are_seen_to_grow(kafka: Broker) -> None:
    topic, clock = kafka.create_topic(), iter(range(1000, 1100))
    publish(kafka, topic, [message(snapshot(sketch_of(rows_of(0))))])
    with SnapshotReader(kafka.bootstrap, topic, wall_clock=lambda: float(next(clock))) as reader:
        first, second = itertools.islice(reader.watch(every_s=0.1, unchanged=True), 2)
    assert second.sketch is first.sketch
    assert second.ages_s["rows/0"] > first.ages_s["rows/0"]


@pytest.mark.slow
def test_watch_outlives_a_broker_that_is_killed(private_broker: PrivateBrokers) -> None:
    broker = private_broker()
    topic = broker.create_topic()
    publish(broker, topic, [message(snapshot(sketch_of(rows_of(0, n=10))))])
    with reader_of(broker, topic, reconnect_backoff_max_ms=500, log_level=0) as reader:
        watching = reader.watch(every_s=0.2)
        assert next(watching).rows == 10
        broker.kill()
        assert not reader.wait(1.0)
        broker.restart()
        publish(broker, topic, [message(snapshot(sketch_of(rows_of(0, n=20)), number=2))])
        assert next(watching).rows == 20


def test_watch_waits_for_a_first_snapshot_and_ends_when_closed(kafka: Broker) -> None:
    topic = kafka.create_topic()
    reader = reader_of(kafka, topic)
    watching = reader.watch(every_s=0.1)
    publish(kafka, topic, [message(snapshot(sketch_of(rows_of(0))))])
    assert next(watching).rows == 40
    reader.close()
    assert list(watching) == []
    reader.close()


def test_a_transaction_that_was_not_committed_is_not_seen(kafka: Broker) -> None:
    topic = kafka.create_topic()
    seen, unseen = (message(snapshot(sketch_of(rows_of(n)), number=n)) for n in (1, 2))
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    for one, end in ((seen, producer.commit_transaction), (unseen, producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, one.value, one.key, headers=list(one.headers))
        producer.flush(30)
        end(30)
    with reader_of(kafka, topic, timeout_s=20) as reader:
        assert reader.latest()[0].id.number == 1
        producer.begin_transaction()
        producer.produce(topic, unseen.value, unseen.key, headers=list(unseen.headers))
        producer.flush(30)
        assert reader.latest()[0].id.number == 1  # still open: the reader does not wait for it
        producer.abort_transaction(30)
        assert reader.latest()[0].id.number == 1
    with reader_of(kafka, topic, timeout_s=20) as cold:
        assert cold.latest()[0].id.number == 1


def test_partitions_may_be_added_to_the_snapshot_topic(kafka: Broker) -> None:
    topic = kafka.create_topic()
    with reader_of(kafka, topic) as reader:
        publish(kafka, topic, [message(snapshot(sketch_of(rows_of(0)), 0, partitions=16))])
        assert len(reader.latest()) == 1
        kafka.add_partitions(topic, 6)
        publish(kafka, topic, [message(snapshot(sketch_of(rows_of(0)), p, partitions=16, number=2)) for p in range(16)])
        assert [found.id.order for found in reader.latest()] == [(1, 2)] * 16


def test_a_topic_made_again_is_read_again(kafka: Broker) -> None:
    topic = kafka.create_topic()
    with reader_of(kafka, topic) as reader:
        publish(kafka, topic, [message(snapshot(sketch_of(rows_of(0)), number=n)) for n in range(1, 6)])
        assert reader.latest()[0].id.number == 5
        kafka.delete_topic(topic)
        kafka.create_topic(name=topic)
        publish(kafka, topic, [message(snapshot(sketch_of(rows_of(0)), epoch=2))])
        assert reader.latest()[0].id.order == (2, 1)


# -- references ----------------------------------------------------------------------------------------------


@pytest.fixture(params=["disk", pytest.param("s3", marks=[pytest.mark.real_s3, pytest.mark.xdist_group("s3")])])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    if request.param == "disk":
        yield (tmp_path / "a store").as_uri(), {}
    else:
        server = request.getfixturevalue("s3_server")
        yield server.new_url(), server.options()


KEY = "my%20group/rows/0/blobs/00000000000000000001-1-ab-snapshot"


def test_large_snapshots_are_fetched_from_the_store(kafka: Broker, place: tuple[str, dict[str, str]]) -> None:
    url, options = place
    store, topic = open_store(url, options), kafka.create_topic()
    A = rows_of(3)
    encoded = encode_snapshot(snapshot(sketch_of(A)))
    store.put(KEY, encoded)
    publish(kafka, topic, [reference_to(encoded, store.url, KEY)])
    with reader_of(kafka, topic, store_options=options, trusted_stores=[url]) as reader:
        assert holds([A], reader.merged().sketch)
        store.delete(KEY)
        assert holds([A], reader.merged().sketch)  # fetched once


def test_a_reference_whose_bytes_are_gone_is_read_again_in_the_topic(kafka: Broker, tmp_path: Path) -> None:
    store, topic = open_store((tmp_path / "s").as_uri()), kafka.create_topic()
    old, new = (encode_snapshot(snapshot(sketch_of(rows_of(n)), number=n)) for n in (1, 2))
    publish(kafka, topic, [reference_to(old, store.url, KEY)])
    with reader_of(kafka, topic, store_url=store.url) as reader:
        with pytest.raises(ObjectMissingError, match=r"g/rows/0 \(1, 1\) refers to .* store_url"):
            reader.latest()
        publish(kafka, topic, [message_of(new)])
        assert reader.latest()[0].id.number == 2


def test_bytes_that_are_not_those_referred_to_are_refused(kafka: Broker, tmp_path: Path) -> None:
    store, topic = open_store((tmp_path / "s").as_uri()), kafka.create_topic()
    meant, other = (encode_snapshot(snapshot(sketch_of(rows_of(n)), number=n)) for n in (1, 2))
    store.put(KEY, other)
    publish(kafka, topic, [reference_to(meant, store.url, KEY)])
    told = {"store_url": store.url}
    with reader_of(kafka, topic, **told) as reader, pytest.raises(ChecksumError, match="not what the snapshot"):
        reader.latest()


def test_a_store_that_has_another_address_from_here(kafka: Broker, tmp_path: Path) -> None:
    store, topic = open_store((tmp_path / "here").as_uri()), kafka.create_topic()
    encoded = encode_snapshot(snapshot(sketch_of(rows_of(1))))
    store.put(KEY, encoded)
    publish(kafka, topic, [reference_to(encoded, "file:///there", KEY)])
    with reader_of(kafka, topic, store_url=store.url) as reader:
        assert reader.latest()[0].sketch.rows == 40


# -- what is refused -----------------------------------------------------------------------------------------


def test_an_empty_topic_is_said_to_be_one(kafka: Broker) -> None:
    with reader_of(kafka, kafka.create_topic()) as reader:
        for _ in range(2):
            with pytest.raises(NoSnapshotError, match="has no snapshot: none has been published yet"):
                reader.merged()


def test_a_topic_that_is_not_there_is_an_error_that_says_so(kafka: Broker) -> None:
    with reader_of(kafka, "no-such-topic") as reader, pytest.raises(BrokerRefusedError, match="does not exist on"):
        reader.latest()


def test_a_broker_that_is_not_there_is_an_error_that_says_so() -> None:
    with (
        SnapshotReader("127.0.0.1:1", "t", timeout_s=1.0, log_level=0) as reader,
        pytest.raises(BrokerRefusedError, match=r"127\.0\.0\.1:1 did not answer in 1 s"),
    ):
        reader.latest()


def test_tokens_come_from_a_function() -> None:
    asked: list[str] = []

    def token(config: str) -> tuple[str, float]:
        asked.append(config)
        return "token", 2e9

    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_config": "us"}
    SnapshotReader("127.0.0.1:1", "t", oauth_cb=token, log_level=0, **login).close()
    assert set(asked) == {"us"}


def test_a_newer_format_is_told_from_damage(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, damaged_topic = kafka.create_topic(), kafka.create_topic()
    good = message(snapshot(sketch_of(rows_of(0))))
    monkeypatch.setattr(wire, "VERSION", 2)
    newer = encode_snapshot(snapshot(sketch_of(rows_of(0))))
    monkeypatch.undo()
    publish(kafka, topic, [good._replace(value=newer)])
    publish(kafka, damaged_topic, [good._replace(value=good.value[:-1] + bytes([good.value[-1] ^ 1]))])
    with (
        reader_of(kafka, topic) as reader,
        pytest.raises(NewerFormatError, match="version 2, this program reads up to 1"),
    ):
        reader.latest()
    with reader_of(kafka, damaged_topic) as reader, pytest.raises(ChecksumError, match=r"g/rows/0 \(1, 1\).*damaged"):
        reader.latest()


def test_a_foreign_message_is_an_error_until_a_snapshot_takes_its_place(kafka: Broker) -> None:
    topic = kafka.create_topic()
    good = message(snapshot(sketch_of(rows_of(0))))
    publish(kafka, topic, [good._replace(value=msgpack.packb({"foreign": [1]}), headers=())])
    with reader_of(kafka, topic) as reader:
        for _ in range(2):
            with pytest.raises(FormatError, match="'g/rows/0': not a snapshot of sfd-stream"):
                reader.latest()
        publish(kafka, topic, [good])
        assert len(reader.latest()) == 1


def test_parts_of_different_width_are_padded(kafka: Broker) -> None:
    topic = kafka.create_topic()
    matrices = [rows_of(0, d=8), rows_of(1, d=16)]
    made = [snapshot(sketch_of(A), p, partitions=2, columns="growing") for p, A in enumerate(matrices)]
    publish(kafka, topic, map(message, made))
    with reader_of(kafka, topic) as reader:
        assert holds(matrices, reader.merged().sketch)


@pytest.mark.parametrize(
    "other",
    [{"columns": "hashed", "hash_seed": 1}, {"columns": "fixed", "hash_seed": None}],
    ids=["another seed", "another mode"],
)
def test_columns_of_another_meaning_are_refused(kafka: Broker, other: dict[str, Any]) -> None:
    topic = kafka.create_topic()
    first = snapshot(sketch_of(rows_of(0)), 0, partitions=2, columns="hashed", hash_seed=0)
    publish(kafka, topic, [message(first), message(replace(first, id=replace(first.id, partition=1), **other))])
    with reader_of(kafka, topic) as reader:
        assert len(reader.latest()) == 2
        with pytest.raises(UnmergeableError, match=r"columns of g/rows/1 .* do not mean what those of g/rows/0"):
            reader.merged()


def test_two_groups_of_one_topic_must_be_chosen_from(kafka: Broker) -> None:
    topic = kafka.create_topic()
    publish(kafka, topic, [message(snapshot(sketch_of(rows_of(0)), group=group)) for group in ("a", "b")])
    with reader_of(kafka, topic) as reader, pytest.raises(UnmergeableError, match="same rows, which would count twice"):
        reader.merged()
    with reader_of(kafka, topic, group="b") as reader:
        assert reader.latest()[0].id.group == "b"
    with reader_of(kafka, topic, group="c") as reader, pytest.raises(NoSnapshotError, match="no snapshot of group c"):
        reader.merged()


def test_headers_dropped_on_the_way_do_not_matter(kafka: Broker) -> None:
    topic = kafka.create_topic()
    made = [message(snapshot(sketch_of(rows_of(n)), number=n))._replace(headers=()) for n in (2, 1)]
    publish(kafka, topic, made)
    with reader_of(kafka, topic) as reader:
        assert reader.latest()[0].id.number == 2


def test_a_tombstone_takes_a_partition_away_for_cold_and_for_live_readers(kafka: Broker) -> None:
    topic = kafka.create_topic()
    publish(kafka, topic, [message(snapshot(sketch_of(rows_of(p)), p, partitions=2)) for p in (0, 1)])
    with reader_of(kafka, topic) as live:
        assert live.merged().complete
        kafka.produce(topic, [None], key=b"g/rows/0")
        with reader_of(kafka, topic) as cold:
            for reader in (live, cold):
                assert reader.merged().missing == ("rows/0",)


def test_history_tells_every_state_since_all_partitions_had_one_or_a_few_of_them(kafka: Broker) -> None:
    topic = kafka.create_topic(partitions=3)
    for number in (1, 2, 3):
        made = [snapshot(sketch_of(rows_of(p, n=10 * number)), p, partitions=2, number=number) for p in range(2)]
        publish(kafka, topic, map(message, made))
    with reader_of(kafka, topic) as reader:
        assert [merged.rows for merged in reader.history()] == [20, 30, 40, 50, 60]
        assert [merged.rows for merged in reader.history(points=3)] == [20, 40, 60]
        assert reader.merged().rows == 60


def test_a_closed_reader_says_so(built_in: Broker) -> None:
    reader = SnapshotReader(built_in.bootstrap, built_in.create_topic())
    reader.close()
    reader.close()
    for ask in (reader.merged, reader.latest, reader.refresh, lambda: list(reader.history())):
        with pytest.raises(ValueError, match="this SnapshotReader is closed; create another"):
            ask()
