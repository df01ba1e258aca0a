"""The records of a poll by partition, in order and each once; a Record is created only on request."""

from __future__ import annotations

from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from sfd_stream.kafka.records import Record, split


def message(partition: int, offset: int) -> Message[bytes, bytes]:
    return Message(topic="t", partition=partition, offset=offset, value=b"%d" % offset)


@given(st.lists(st.integers(0, 3), max_size=60), st.sets(st.integers(0, 3)))
def test_splitting_keeps_order_and_every_record_of_the_wanted_partitions(runs: list[int], wanted: set[int]) -> None:
    messages = [message(partition, offset) for offset, partition in enumerate(runs)]
    found = {batch.partition: batch.offsets for batch in split(messages, wanted)}
    expected = {p: [offset for offset, q in enumerate(runs) if q == p] for p in wanted}
    assert found == {p: offsets for p, offsets in expected.items() if offsets}


def test_a_batch_makes_records_only_when_asked() -> None:
    (batch,) = split([message(2, 5), message(2, 9)], {2})
    assert (batch.first_offset, batch.next_offset, len(batch)) == (5, 10, 2)
    assert batch.values == [b"5", b"9"]
    assert batch.record(0) == Record(2, 5, b"5")
    assert batch.record(0).next_offset == 6
