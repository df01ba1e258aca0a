"""A poll hands out at most BATCH_BYTES, however large the messages are that the client delivered at once."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

from confluent_kafka import Message

from sfd_stream.kafka.records import Start
from sfd_stream.kafka.source import BATCH_BYTES, Source
from tests.unit.kafka.conftest import PROTOCOLS, Diary
from tests.unit.kafka.test_torn_polls import FakeClient, assign, played, revoke

if TYPE_CHECKING:
    from tests.support.kafka import Broker

__all__ = ["played"]

LARGE = BATCH_BYTES // 2


def records(partition: int, sizes: list[int], first: int = 0) -> list[Any]:
    return [
        Message(topic="t", partition=partition, offset=first + number, value=bytes(size))
        for number, size in enumerate(sizes)
    ]


def offsets(source: Source) -> list[tuple[int, list[int]]]:
    return [(batch.partition, batch.offsets) for batch in source.poll(1000, 0)]


def test_tiny_records_followed_by_large_ones_are_handed_out_in_bounded_batches(
    played: tuple[Source, FakeClient, Diary],
) -> None:
    source, client, _ = played
    client.script.append(lambda: records(0, [10] * 1000))
    source.poll(1000, 0)
    client.script += [lambda: records(0, [LARGE] * 5, first=1000), *[list] * 4]
    assert [offsets(source) for _ in range(4)] == [
        [(0, [1000, 1001])],
        [(0, [1002, 1003])],
        [(0, [1004])],
        [],
    ]


def test_rows_of_varying_length_are_handed_out_in_full_batches(played: tuple[Source, FakeClient, Diary]) -> None:
    """Nearly every batch would else leave a few records behind, which the next poll hands out alone."""
    source, client, _ = played
    rng = random.Random(5)
    log = iter(records(0, [12 * rng.randrange(1, 200) + 40 for _ in range(40_000)]))
    client.consume = lambda count, _: list(itertools.islice(log, count))  # type: ignore[method-assign]
    batches = [sum(map(len, source.poll(1000, 0))) for _ in range(40)]
    assert min(batches[1:]) > max(batches) / 2, batches


def test_every_record_is_handed_out_once_in_order_and_within_the_bound(
    played: tuple[Source, FakeClient, Diary],
) -> None:
    source, client, _ = played
    rng = random.Random(5)
    sent: dict[int, list[int]] = {0: [], 1: []}
    for _ in range(60):
        delivered = []
        for partition in (0, 1):
            sizes = [rng.choice([1, 1000, LARGE, 3 * BATCH_BYTES]) for _ in range(rng.randrange(5))]
            delivered += records(partition, sizes, first=len(sent[partition]))
            sent[partition] += range(len(sent[partition]), len(sent[partition]) + len(sizes))
        client.script.append(lambda delivered=delivered: delivered)
    client.script += [list] * 400
    seen: dict[int, list[int]] = {0: [], 1: []}
    for _ in range(400):
        batches = source.poll(1000, 0)
        sizes = [len(value or b"") for batch in batches for value in batch.values]
        assert sum(sizes) <= BATCH_BYTES or len(sizes) == 1
        for batch in batches:
            seen[batch.partition] += batch.offsets
    assert seen == sent


def test_records_that_wait_are_not_handed_out_while_their_partition_is_paused(
    played: tuple[Source, FakeClient, Diary],
) -> None:
    source, client, _ = played
    client.script += [lambda: records(0, [LARGE] * 3) + records(1, [LARGE]), *[list] * 4]
    assert offsets(source) == [(0, [0, 1])]
    source.pause([0])
    assert offsets(source) == [(1, [0])]
    assert offsets(source) == []
    source.resume([0])
    assert offsets(source) == [(0, [2])]


def test_records_that_wait_are_dropped_when_their_partition_is_revoked(
    played: tuple[Source, FakeClient, Diary],
) -> None:
    source, client, diary = played
    client.script.append(lambda: records(0, [LARGE] * 5))
    assert offsets(source) == [(0, [0, 1])]
    diary.starts[0] = Start(1)
    client.script += [lambda: revoke(source, 0), lambda: assign(source, 0), lambda: records(0, [1, 1], first=1), list]
    assert [offsets(source) for _ in range(4)] == [[], [], [(0, [1, 2])], []]


def test_the_position_never_passes_records_that_wait(played: tuple[Source, FakeClient, Diary]) -> None:
    """`run --until-end` passes control records by the position: it must not pass rows that were not counted."""
    source, client, _ = played
    client.position = lambda where: [type(tp)(tp.topic, tp.partition, 5) for tp in where]  # type: ignore[attr-defined]
    client.script += [lambda: records(0, [LARGE] * 5), *[list] * 2]
    found = []
    for _ in range(3):
        source.poll(1000, 0)
        found.append(source.position(0))
    assert found == [2, 4, 5]


def test_an_eager_assignment_reads_waiting_records_again_and_hands_each_out_once(built_in: Broker) -> None:
    """Eager clients assign everything again, each partition from the last record handed out."""
    diary = Diary({0: Start(0), 1: None})
    kafka = {"bootstrap.servers": built_in.bootstrap, "group.id": "large", **PROTOCOLS["eager"]}
    source = Source(kafka, "t")
    source.subscribe(diary)
    real, client = source._consumer, FakeClient()
    client.assign = client.incremental_assign  # type: ignore[attr-defined]
    source._consumer = source._assignment.consumer = client  # type: ignore[assignment]
    client.script += [lambda: assign(source, 0, 1), lambda: records(0, [LARGE] * 5)]
    assert [offsets(source) for _ in range(2)] == [[], [(0, [0, 1])]]
    source.begin(1, Start(0))
    assert client.told[-2] == ("assign", [(0, 2), (1, 0)])
    client.script += [lambda: records(0, [LARGE] * 3, first=2), list]
    assert [offsets(source) for _ in range(2)] == [[(0, [2, 3])], [(0, [4])]]
    real.close()


def test_a_batch_that_is_put_back_is_handed_out_again_first_and_only_after_a_resume(
    played: tuple[Source, FakeClient, Diary],
) -> None:
    source, client, _ = played
    client.script += [lambda: records(0, [10] * 3), lambda: records(1, [10]), *[list] * 9]
    (batch,) = source.poll(1000, 0)
    source.put_back(batch)
    assert source.positions[0] == 0
    assert source.position(0) == 0
    assert 0 in source.paused
    assert offsets(source) == [(1, [0])]
    assert offsets(source) == []
    source.resume([0])
    assert offsets(source) == [(0, [0, 1, 2])]
    assert source.positions[0] == 3
