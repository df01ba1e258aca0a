"""Computes the fields and sentences of a worker's status. Pure: no clock, no thread, no broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sfd_stream.errors import FencedError, StoreRefusedError, StoreUnavailableError
from sfd_stream.observe.status import KafkaStatistics, Moment, PartitionStatus, SpectrumStatus, Status, rounded
from sfd_stream.state.manifest import Manifest, blob_name_of
from sfd_stream.state.partition import PartitionState

PREVIEW_BYTES = 48
FAR_BEHIND_S = 10.0
"""A worker with more seconds of work ahead than this is catching up."""
OUTSIDE_AFTER_S = 30.0
"""A join takes seconds; a worker outside its group for longer than this is reported as stuck."""


LATE_FACTOR, LATE_S = 3.0, 10.0
"""A checkpoint is late at this many times its interval, and no sooner than this long after it."""


class ReleasedError(Exception):
    """The partition was released while a job for it was running."""


class Facts(NamedTuple):
    """Counters of a state between two batches. Any thread may read them."""

    next_offset: int
    rows: int
    nnz: int
    bad: int
    tombstones: int
    shrinks: int
    verifications: int
    retries: int
    delta: float
    squared_frobenius: float
    failure_probability: float
    buffer_fill: float

    @classmethod
    def of(cls, state: PartitionState) -> Facts:
        builder = state.builder
        totals = builder.totals
        return cls(
            state.next_offset, builder.rows, builder.nnz, state.bad, state.tombstones, builder.shrinks,
            builder.verifications, builder.retries, totals.delta, totals.squared_frobenius,
            builder.failure_probability, _fill(state),
        )  # fmt: skip


def _fill(state: PartitionState) -> float:
    builder = state.builder
    capacity = builder.parameters.capacity(len(builder.B))
    rows, nnz = builder.buffer.rows, builder.buffer.nnz
    shares = [
        have / limit
        for have, limit in ((rows, capacity.rows), (nnz, capacity.nnz), (nnz + rows, capacity.entries))
        if limit
    ]
    return rounded(min(max(shares, default=0.0), 1.0))


class LoopState(NamedTuple):
    """State of the loop that does not belong to a partition."""

    joined: bool
    stopping: bool
    sketch_idle: bool
    broker_away_s: float | None
    memory_reserved_bytes: int
    outside_group_s: float | None = None
    registry_outage: str | None = None


def counts_of(facts: Facts, spectrum: SpectrumStatus | None) -> dict[str, Any]:
    """The fields of a partition's status that come from its state.

    Delta is that of the last sampled sketch. Without a sample it is that of the rows shrunk so far.
    """
    shrunk = facts.delta / facts.squared_frobenius if facts.squared_frobenius > 0 else 0.0
    same = ("rows", "nnz", "bad", "tombstones", "shrinks", "buffer_fill")
    return {name: getattr(facts, name) for name in same} | {
        "delta_ratio": rounded(spectrum.delta_ratio if spectrum is not None else shrunk),
        "failure_probability": rounded(facts.failure_probability),
    }


def moment_of(status: Status) -> Moment:
    parts = status.partitions
    ratios = [part.delta_ratio for part in parts if part.delta_ratio is not None]
    drifts = [part.drift for part in parts if part.drift is not None]
    angles = [(part.drift_degrees, part.drift_error_degrees) for part in parts if part.drift_degrees is not None]
    degrees, error_degrees = max(angles, default=(None, None))
    return Moment(
        at_s=round(status.at_s, 1),
        rows=status.rows,
        lag=sum(part.lag or 0 for part in parts),
        delta_ratio=max(ratios, default=None),
        checkpoint_age_s=max((part.checkpoint_age_s for part in parts), default=0.0),
        drift=rounded(max(drifts)) if drifts else None,
        drift_degrees=degrees,
        drift_error_degrees=error_degrees,
    )


def in_words(parts: Sequence[PartitionStatus], loop: LoopState, pace: float, every_s: float | None = None) -> str:
    """The current activity of the worker as a sentence. The most urgent condition comes first."""
    if loop.stopping:
        return "stopping: last checkpoints"
    if loop.broker_away_s:
        return f"waiting for the broker: no answer for {loop.broker_away_s:.0f} s"
    if (loop.outside_group_s or 0.0) >= OUTSIDE_AFTER_S:
        return f"stuck: outside the consumer group for {loop.outside_group_s:.0f} s"
    if not loop.joined:
        return "joining the group"
    if loop.registry_outage is not None:
        return f"waiting for the schema registry: {loop.registry_outage}"
    return _trouble(parts) or _late(parts, every_s) or _work(parts, pace)


def _trouble(parts: Sequence[PartitionStatus]) -> str | None:
    if slow := [part.partition for part in parts if part.stuck_s > 0 and part.state == "claiming"]:
        return f"stuck: the claim of {_listed(slow)} does not progress"
    if claiming := _those(parts, "claiming"):
        return f"restoring {_listed(claiming)}"
    if paused := _those(parts, "paused"):
        return f"waiting for the checkpoint store: {_listed(paused)} paused"
    if stuck := [part.partition for part in parts if part.stuck_s > 0 and part.state != "waiting"]:
        return f"stuck: {_listed(stuck)} {'has' if len(stuck) == 1 else 'have'} unread records and no progress"
    if waiting := _those(parts, "waiting"):
        return f"no room in memory for {_listed(waiting)}: not read until there is"
    return None


def _late(parts: Sequence[PartitionStatus], every_s: float | None) -> str | None:
    """`every_s` is checkpoint.every_s. A row waits about that long, plus the time to write its checkpoint."""
    oldest_s = max((part.checkpoint_age_s for part in parts), default=0.0)
    if every_s is None or oldest_s <= max(LATE_FACTOR * every_s, every_s + LATE_S):
        return None
    return f"checkpoints are late: a row has waited for {oldest_s:.0f} s, and checkpoint.every_s is {every_s:g} s"


def _work(parts: Sequence[PartitionStatus], pace: float) -> str:
    lag = sum(part.lag or 0 for part in parts)
    if not parts:
        return "ready: no partition assigned"
    if lag > FAR_BEHIND_S * max(pace, 1.0):
        return f"catching up: {lag:,} messages behind"
    return "keeping up" if pace > 0 else "idle: up to date"


def _those(parts: Sequence[PartitionStatus], state: str) -> list[int]:
    return [part.partition for part in parts if part.state == state]


def _listed(partitions: Sequence[int]) -> str:
    text = ", ".join(map(str, partitions[:5])) + (", …" if len(partitions) > 5 else "")
    return f"partition{'s' if len(partitions) != 1 else ''} {text}"


def preview(value: bytes) -> str:
    """The first bytes of a message as text. Unprintable bytes are escaped."""
    text = value[:PREVIEW_BYTES].decode("ascii", "backslashreplace")
    text = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
    return text + ("…" if len(value) > PREVIEW_BYTES else "")


def written_bytes(manifest: Manifest) -> int:
    """Size of the blobs that were written for this manifest. Its other blobs existed before."""
    names = [(blob_name_of(blob.key), blob.size) for blob in set(manifest.references)]
    return sum(size for name, size in names if name is not None and name.slot == manifest.number)


def failure_kind(error: BaseException) -> str:
    if isinstance(error, StoreUnavailableError):
        return "unavailable"
    if isinstance(error, StoreRefusedError):
        return "refused"
    if isinstance(error, ReleasedError):
        return "abandoned"
    return "fenced" if isinstance(error, FencedError) else "other"


def kafka_statistics(found: Mapping[str, Any]) -> KafkaStatistics:
    brokers = {
        str(broker["nodeid"]): broker for broker in found.get("brokers", {}).values() if broker.get("nodeid", -1) >= 0
    }
    partitions = [part for topic in found.get("topics", {}).values() for part in topic.get("partitions", {}).values()]
    return KafkaStatistics(
        rtt_s={broker: values.get("rtt", {}).get("avg", 0) / 1e6 for broker, values in brokers.items()},
        transmit_errors={broker: int(values.get("txerrs", 0)) for broker, values in brokers.items()},
        fetch_queue=sum(int(part.get("fetchq_cnt", 0)) for part in partitions),
    )
