"""What may be asked about a source's topic, group and cluster: each within its time, else TimeoutError.

All but what is known already go to clients of their own, which any thread may ask: a consumer's questions wait behind
its fetches, half a second for each partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException

from sfd_stream.kafka.admin import Cluster, GroupOffsets
from sfd_stream.kafka.commits import Committed
from sfd_stream.kafka.errors import error_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sfd_stream.kafka.assignment import Assignment
    from sfd_stream.kafka.records import Backlog

_METADATA_MAGIC = b"CGMDv2:"
"""How librdkafka's group metadata begins; the generation, four bytes, is next, and is -1 or 0 for no member."""


class Questions:
    """A Source's other half."""

    _assignment: Assignment
    _backlog: Backlog
    _cluster: Cluster
    _first_topic_id: str | None = None
    _consumer: Consumer
    _group: GroupOffsets
    _properties: Mapping[str, Any]
    topic: str

    # Of the cluster

    def committed(self, partitions: Collection[int], timeout_s: float) -> dict[int, Committed | None]:
        """What the group has committed once no transaction on it is open; None where nothing is committed."""
        return self._group.committed(partitions, timeout_s)

    def first_offsets(self, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        """Where the logs begin."""
        return self._cluster.first_offsets(partitions, timeout_s)

    def watermarks(self, partition: int, timeout_s: float) -> tuple[int, int]:
        """The first offset in the log and the one after the last committed record."""
        return self._cluster.watermarks(partition, timeout_s)

    def end_offsets(self, partitions: Collection[int], timeout_s: float) -> dict[int, int]:
        """As `watermarks`, for many at once."""
        return self._cluster.end_offsets(partitions, timeout_s)

    def partition_count(self, timeout_s: float) -> int:
        return self._cluster.partition_count(timeout_s)

    def cluster_id(self, timeout_s: float) -> str:
        return self._cluster.cluster_id(timeout_s)

    def topic_id(self, timeout_s: float) -> str | None:
        """Asked each time: a topic that was deleted and recreated has another one. None on the built-in broker."""
        found = self._cluster.topic_id(timeout_s)
        self._first_topic_id = self._first_topic_id or found
        return found

    # Known already, to the thread that owns the source

    @property
    def positions(self) -> dict[int, int]:
        """Where reading stands in each partition that is read."""
        return dict(self._assignment.positions)

    def position(self, partition: int) -> int:
        """Where reading stands. It passes control records, which are never handed out: the end is
        reached by this. It does not pass records that wait to be handed out.
        """
        if partition in self._backlog:
            return self._assignment.positions[partition]
        (found,) = self._consumer.position(self._assignment.where([partition]))
        handed_out = self._assignment.positions[partition]
        return handed_out if found.offset == OFFSET_INVALID else max(found.offset, handed_out)

    def known_end(self, partition: int) -> int | None:
        """The end that the last fetch told; None where none has told yet."""
        (where,) = self._assignment.where([partition])
        _, end = self._consumer.get_watermark_offsets(where, cached=True)
        return end if end >= 0 else None

    def known_lag(self) -> int | None:
        """Records between the positions and the ends that the last fetches told; None where none has told yet."""
        ends = {partition: self.known_end(partition) for partition in self._assignment.positions}
        known = [max(end - self._assignment.positions[p], 0) for p, end in ends.items() if end is not None]
        return sum(known) if ends and len(known) == len(ends) else None

    def membership(self) -> bytes | None:
        """Who we are in the group, in which generation, for a transaction's offsets; None while it is no member, and
        from the moment it is another member until the group has assigned something to that one.

        A blank one, or one without a generation, must never be used: a coordinator whose group has no members takes it
        for that of an administrator, and checks nothing.
        """
        return self._membership_of(self._assignment.member)

    def _membership_of(self, member: str) -> bytes | None:
        found = self._consumer.consumer_group_metadata()
        return found if member and member.encode() in found and _generation(found) >= 0 else None

    def has_nothing(self) -> bool:
        """Whether the group has us and gave us no partition, of which KIP-848's client says nothing at all."""
        if self._properties.get("group.protocol") != "consumer" or self._assignment.all:
            return False
        return _generation(self._consumer.consumer_group_metadata()) > 0

    def is_connected(self) -> bool:
        """Whether the client has a connection to any broker. Does not wait: with one, the request times out at once."""
        try:
            self._consumer.list_topics(self.topic, timeout=0)
        except KafkaException as exception:
            return error_of(exception).code() != KafkaError._TRANSPORT
        return True

    def member_id(self) -> str:
        return self._assignment.member_id()


def _generation(membership: bytes) -> int:
    """0 where it is not known."""
    found = membership.removeprefix(_METADATA_MAGIC)[:4] if membership.startswith(_METADATA_MAGIC) else b""
    return int.from_bytes(found, "little", signed=True)
