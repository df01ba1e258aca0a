"""Reads a topic from its beginning to its end, and then what follows. Joins no group and commits nothing.

`catch_up` returns every record up to the ends that the topic had at the call, then stops; `poll` returns what comes
later. Only committed records are read. One thread owns it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from sfd_stream.errors import BrokerRefusedError, BrokerUnavailableError
from sfd_stream.kafka.admin import CRITICAL, Admin
from sfd_stream.kafka.errors import CHECK_IT, Fault, Hooks, address, create, described, error_of, fault_of, refusal
from sfd_stream.kafka.properties import tail_properties
from sfd_stream.kafka.records import Record

_BATCH = 500
_TURN_S = 0.1
_CHECK_EVERY_S = 30.0
_CHECK_TIMEOUT_S = 1.0


class Tail:
    def __init__(
        self,
        properties: Mapping[str, Any],
        topic: str,
        *,
        hooks: Hooks | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.topic = topic
        self.cluster_id: str | None = None  # known after the first reading
        self._clock = clock
        properties = {"log_level": CRITICAL, **properties}
        self._properties = tail_properties(properties)
        self._failure: BrokerRefusedError | None = None
        self._words = ""
        self._checked_at = clock()
        self._positions: dict[int, int] = {}  # assigned: one past the last record read, or the end that was reached
        self._callbacks = {"error_cb": self._note, **(hooks or Hooks()).as_properties(self._properties)}
        self._behind: dict[int, int] = {}  # positions at the last check, where the log had more
        self._consumer = self._connected()
        self._admin = Admin(properties, hooks)

    def __repr__(self) -> str:
        return f"Tail({address(self._properties)!r}, {self.topic!r})"

    def catch_up(self, timeout_s: float) -> Iterator[list[Record]]:
        """Records in batches, up to the ends as of now. There is no time limit as long as records arrive.

        BrokerRefusedError if the broker does not answer, or no record arrives, for `timeout_s`.
        """
        marks = self._marks(self._clock() + timeout_s)
        ends = {p: high for p, (_, high) in marks.items()}
        at = {p: self._position(p) for p in ends}
        begun = {p: max(at[p], low) for p, (low, _) in marks.items()}
        moved_s = self._clock()
        while any(at[p] < end for p, end in ends.items()):
            if self._clock() - moved_s > timeout_s:
                self._replace_client()
                raise self._stalled(ends, begun, at, timeout_s)
            if found := self.poll(_TURN_S):
                yield found
            last, at = at, {p: self._position(p) for p in ends}
            if found or at != last:
                moved_s = self._clock()

    def poll(self, timeout_s: float) -> list[Record]:
        """The records that arrived within the time."""
        self._find_new_partitions()
        try:
            messages = self._consumer.consume(_BATCH, timeout_s)
        except KafkaException as exception:
            self._note(error_of(exception))
            messages = []
        records = [record for message in messages if (record := self._taken(message)) is not None]
        if self._failure is not None:
            raise self._failure
        return records

    def rewind(self) -> None:
        """The next `catch_up` reads from the beginning again."""
        self._consumer.unassign()
        self._positions.clear()

    def close(self) -> None:
        self._consumer.close()
        del self._admin  # the reader is in a cycle with its consumer's callback, and Python's collector runs seldom

    def _connected(self) -> Consumer:
        return create(Consumer, {**self._properties, **self._callbacks})

    def _replace_client(self) -> None:
        """A client that gets no records while the broker has some may never get any: librdkafka loses all its brokers
        when a metadata response lists none (its issue 5301). A new client continues at the same positions.
        """
        self._positions = {p: self._position(p) for p in self._positions}
        logging.getLogger(__name__).warning("no records of topic %s arrive, replacing the Kafka client", self.topic)
        threading.Thread(target=self._consumer.close, name="kafka-close", daemon=True).start()  # it may hang
        self._consumer = self._connected()
        self._assign(self._positions)

    def _assign(self, partitions: Collection[int]) -> None:
        places = [(p, self._positions[p] or OFFSET_BEGINNING) for p in partitions]
        self._consumer.incremental_assign([TopicPartition(self.topic, p, at) for p, at in places])

    def _taken(self, message: Any) -> Record | None:
        partition, error = message.partition(), message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:  # its offset passes control records, which are never returned
                self._positions[partition] = max(self._positions.get(partition, 0), message.offset())
            else:
                self._note(error)
            return None
        record = Record.of(message)
        self._positions[partition] = record.next_offset
        return record

    def _note(self, error: KafkaError) -> None:
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return  # librdkafka looks for a group's coordinator, though a reader joins none: it needs no right to one
        if fault_of(error) is Fault.REFUSED:
            self._failure = self._failure or refusal(error, self._properties)
        self._words = described(error, self._properties)

    # The ends of the topic

    def _marks(self, deadline: float) -> dict[int, tuple[int, int]]:
        """The beginning and the end of every partition that is not empty."""
        partitions = self._assigned(deadline)
        marks = self._ask(lambda left_s: self._admin.marks(self.topic, partitions, left_s), deadline)
        if any(high < self._positions[p] for p, (_, high) in marks.items()):
            self.rewind()  # the topic was deleted and created again
            self._assigned(deadline)
        return {p: (low, high) for p, (low, high) in marks.items() if low < high}

    def _find_new_partitions(self) -> None:
        """Finds partitions that were added to the topic: new records of a key may be there."""
        if self._positions and self._clock() - self._checked_at > _CHECK_EVERY_S:
            with contextlib.suppress(BrokerRefusedError):  # requests for assigned partitions report it
                self._assigned(self._clock() + _CHECK_TIMEOUT_S)
                self._find_missing_records()
            self._checked_at = self._clock()

    def _find_missing_records(self) -> None:
        """Replaces the client if a partition has had records since the last check and none of them has arrived."""
        at = {p: self._position(p) for p in self._positions}
        ends = self._admin.known_ends([(self.topic, p) for p in at], _CHECK_TIMEOUT_S)
        behind = {p: at[p] for p in at if at[p] < ends.get((self.topic, p), 0)}
        stuck = [p for p, position in behind.items() if self._behind.get(p) == position]
        self._behind = behind
        if stuck:
            self._behind = {}
            self._replace_client()

    def _assigned(self, deadline: float) -> list[int]:
        """All partitions. Those that are new are assigned."""
        partitions = self._partitions(deadline)
        fresh = [p for p in partitions if p not in self._positions]
        if fresh:
            self._positions.update(dict.fromkeys(fresh, 0))
            self._assign(fresh)
        self._checked_at = self._clock()
        return partitions

    def _partitions(self, deadline: float) -> list[int]:
        metadata = self._ask(lambda left_s: self._admin.metadata(self.topic, left_s), deadline)
        self.cluster_id = metadata.cluster_id
        found = metadata.topics.get(self.topic)
        error = None if found is None else found.error
        if error is not None and fault_of(error) is Fault.REFUSED:
            raise refusal(error, self._properties)
        if found is None or not found.partitions:
            raise BrokerRefusedError(
                f"topic {self.topic} does not exist on {address(self._properties)}; create it, or set another topic"
            )
        return sorted(found.partitions)

    def _position(self, partition: int) -> int:
        (found,) = self._consumer.position([TopicPartition(self.topic, partition)])
        known = self._positions[partition]
        return known if found.offset == OFFSET_INVALID else max(found.offset, known)

    def _ask(self, question: Callable[[float], Any], deadline: float) -> Any:
        left_s = max(deadline - self._clock(), 0.1)
        try:
            return self._admin.ask(question, left_s)
        except TimeoutError:
            if not self._positions:
                self._consumer.poll(0)  # brings errors, as of credentials; nothing is assigned that it could hand out
            if self._failure is not None:
                raise self._failure from None
            raise self._too_late(f"{self.topic} can't be read", left_s) from None

    def _stalled(
        self, ends: Mapping[int, int], begun: Mapping[int, int], at: Mapping[int, int], timeout_s: float
    ) -> BrokerRefusedError:
        behind = sorted(p for p, end in ends.items() if at[p] < end)
        done, whole = (sum(max(to[p] - begun[p], 0) for p in ends) for to in (at, ends))
        return self._too_late(
            f"read {done:,} of {whole:,} records of {self.topic}, and partitions {behind[:5]} not to their ends",
            timeout_s,
        )

    def _too_late(self, what: str, timeout_s: float) -> BrokerUnavailableError:
        words = self._admin.outage.words or self._words
        last = f" (last error: {words})" if words else ""
        where = f"{address(self._properties)} did not answer in {timeout_s:.0f} s"
        return BrokerUnavailableError(f"{where}: {what}{last}; {CHECK_IT}")
