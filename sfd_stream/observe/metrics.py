"""Every metric that is exported, declared once: name, kind, unit, help and labels.

`docs/reference/metrics.md` is made of this.

Names follow Prometheus' conventions: `sfd_` first, the base unit last, `_total` for what only grows. Every series also
carries the labels `worker`, `group` and `topic`. No label's set of values grows with time: partitions, the decoder's
reasons, kinds that are listed here, and brokers are all there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
Service = Literal["worker", "merge", "score"]

WORKER_LABELS = ("worker", "group", "topic")
"""Labels of every series: the worker of the process, its group and its topic."""

SHRINK_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""From a few milliseconds (small sketch) to half a minute (wide sketch)."""

STORE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""From a local disk's fsync to a store that was unavailable for minutes."""

POLL_BUCKETS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0)
"""300 s is the default of max.poll.interval.ms: after it the group revokes the partitions."""

OVER_MEAN_BUCKETS = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)
"""In units of the mean residual: half of the rows are near 1, anomalies are far above."""

CATCH_UP_BUCKETS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)


@dataclass(frozen=True)
class Metric:
    """One declaration. `name` is as exported; a histogram adds `_bucket`, `_sum` and `_count` to it."""

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    values: tuple[str, ...] = ()
    """The values of the last label if they are a fixed set. Those series exist from the start, with value zero."""
    by: Service = "worker"
    """The service that exports it. `sfd_merge_` and `sfd_score_` begin the names of those that are not the worker's."""

    @property
    def series(self) -> tuple[str, ...]:
        """The names that a query may use."""
        if self.kind != "histogram":
            return (self.name,)
        return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")


def _metric(
    name: str, unit: str, words: str, *labels: str, values: tuple[str, ...] = (), buckets: tuple[float, ...] = ()
) -> Metric:
    """A metric by the conventions above: its name and its buckets tell its kind, and the name tells who exports it."""
    kind: Kind = "histogram" if buckets else "counter" if name.endswith("_total") else "gauge"
    by: Service = "merge" if name.startswith("sfd_merge_") else "score" if name.startswith("sfd_score_") else "worker"
    return Metric(name, kind, unit, words, labels, buckets, values, by)


DECODE_REASONS = (
    "json", "malformed", "bad_keys", "bad_type", "bad_length", "bad_pointers", "bad_index", "not_finite", "too_large",
    "over_limit", "bad_path", "bad_field", "unknown_schema", "bad_schema",
)  # fmt: skip
FAILURE_KINDS = ("unavailable", "refused", "fenced", "abandoned", "other")
REBALANCE_KINDS = ("assign", "revoke", "lost")
STATES = ("waiting", "claiming", "reading", "paused", "finished")
MERGE_FAILURE_KINDS = ("fetch", "publish")
PART_STATES = ("held", "missing")
SCORE_KINDS = ("p_value", "residual_over_mean", "t2")

# What comes in

MESSAGES = _metric("sfd_messages_total", "messages", "Messages read from the input topic.", "partition")
ROWS = _metric("sfd_rows_total", "rows", "Rows decoded and handed to the sketch.", "partition")
NONZEROS = _metric("sfd_nonzeros_total", "non-zeros", "Non-zeros of those rows.", "partition")
INPUT_BYTES = _metric("sfd_input_bytes_total", "bytes", "Bytes of message values read.", "partition")
TOMBSTONES = _metric("sfd_tombstones_total", "messages", "Messages without a value: skipped and counted.", "partition")
DEAD_LETTERS = _metric(
    "sfd_dead_letters_total", "messages",
    "Messages that are not rows, sent to the dead-letter topic, by the decoder's reason.",
    "reason", values=DECODE_REASONS,
)  # fmt: skip

# How far behind

APPLIED_OFFSET = _metric(
    "sfd_applied_offset", "offset",
    "The next offset after all that the sketch holds; of a partition not read yet, where reading will begin.",
    "partition",
)  # fmt: skip
COMMITTED_OFFSET = _metric(
    "sfd_committed_offset", "offset", "The last offset that the broker acknowledged as committed.", "partition"
)
END_OFFSET = _metric("sfd_end_offset", "offset", "The end of the partition's log.", "partition")
LAG = _metric("sfd_lag_messages", "messages", "End offset minus applied offset.", "partition")
STUCK = _metric(
    "sfd_partition_stuck_seconds", "seconds",
    "How long a partition has made no progress while its lag grew, or its claim has not progressed, or it has"
    " delivered no record for a minute or more although it has some and is not paused; 0 otherwise.", "partition",
)  # fmt: skip
PARTITIONS = _metric(
    "sfd_partitions", "partitions",
    "Assigned partitions by state: waiting (no room in memory), claiming, reading, paused (the"
    " store does not keep up), finished.", "state", values=STATES,
)  # fmt: skip

# How good the sketch is

SHRINK_SECONDS = _metric(
    "sfd_shrink_seconds", "seconds", "Time of one shrink of a full buffer into the sketch.", buckets=SHRINK_BUCKETS
)
VERIFICATIONS = _metric(
    "sfd_verifications_total", "verifications", "Verifications of a shrink's error, passed or not.", "partition"
)
VERIFY_RETRIES = _metric(
    "sfd_verify_retries_total", "verifications",
    "Verifications after a failed one of the same shrink; their share of all is sfd:verify_retries:share5m.",
    "partition",
)  # fmt: skip
DELTA_RATIO = _metric("sfd_delta_ratio", "ratio", "The certified error bound delta over ||A||F^2.", "partition")
FAILURE_PROBABILITY = _metric(
    "sfd_failure_probability_ratio", "ratio",
    "The probability that the certified error bound of the partition is wrong at any time. The sum over all"
    " partitions is that of the merged topic.", "partition",
)  # fmt: skip
PROMISED_RATIO = _metric(
    "sfd_delta_promised_ratio", "ratio",
    "What the theorem promises for this ell at worst: 41/(6 ell), at most 1; none for the unverified method.",
)  # fmt: skip
DRIFT = _metric(
    "sfd_subspace_drift_ratio", "ratio",
    "Mean squared sine of the angles between the first directions of the last two samples: 0 same, 1 orthogonal.",
    "partition",
)  # fmt: skip
BUFFER_FILL = _metric("sfd_buffer_fill_ratio", "ratio", "How full the buffer of rows not yet shrunk is.", "partition")

# Checkpoints

CHECKPOINTS = _metric("sfd_checkpoints_total", "checkpoints", "Checkpoints made durable.", "partition")
CHECKPOINT_SECONDS = _metric(
    "sfd_checkpoint_seconds", "seconds",
    "From freezing a state to its manifest being in the store.", buckets=STORE_BUCKETS,
)  # fmt: skip
CHECKPOINT_BYTES = _metric(
    "sfd_checkpoint_bytes_total", "bytes", "Bytes of blobs written for checkpoints.", "partition"
)
CHECKPOINT_FAILURES = _metric(
    "sfd_checkpoint_failures_total", "attempts",
    "Failed attempts at a checkpoint, by kind; unavailable ones are made again until checkpoint.give_up_s is over.",
    "kind", values=FAILURE_KINDS,
)  # fmt: skip
RETENTION_FAILURES = _metric(
    "sfd_retention_failures_total", "attempts",
    "Failed attempts to remove old checkpoints, by kind.", "kind", values=FAILURE_KINDS,
)  # fmt: skip
CHECKPOINT_AGE = _metric(
    "sfd_checkpoint_age_seconds", "seconds",
    "The age of the oldest row that is not durable yet; 0 when all rows are, also on an idle topic.", "partition",
)  # fmt: skip
MANIFEST_NUMBER = _metric("sfd_manifest_number", "number", "The newest manifest's number.", "partition")
MANIFEST_EPOCH = _metric("sfd_manifest_epoch", "epoch", "The owner's epoch.", "partition")
FENCES = _metric("sfd_fences_total", "fences", "Partitions released because another owner has written a manifest.")

# Rebalances

REBALANCES = _metric(
    "sfd_rebalances_total", "rebalances",
    "Rebalances that assigned or revoked partitions, by kind.", "kind", values=REBALANCE_KINDS,
)  # fmt: skip
RESTORE_SECONDS = _metric(
    "sfd_restore_seconds", "seconds", "From assignment to a restored state, one partition.", buckets=STORE_BUCKETS
)
RESTORE_FAILURES = _metric(
    "sfd_restore_failures_total", "attempts",
    "Failed attempts to take a partition over, by kind.", "kind", values=FAILURE_KINDS,
)  # fmt: skip
RESTORED_ROWS = _metric("sfd_restored_rows_total", "rows", "Rows that restored states had counted already.")
REPLAY_SECONDS = _metric(
    "sfd_replay_seconds", "seconds",
    "From a restored state to the log's end as it was then, one partition.", buckets=CATCH_UP_BUCKETS,
)  # fmt: skip
REPLAYED_ROWS = _metric(
    "sfd_replayed_rows_total", "rows", "Rows read from restored states up to the log's end as it was then."
)

# Snapshots

SNAPSHOTS = _metric("sfd_snapshots_total", "snapshots", "Snapshots acknowledged.", "partition")
SNAPSHOT_FAILURES = _metric(
    "sfd_snapshot_failures_total", "attempts",
    "Failed attempts to publish a snapshot, by kind; it stays due until it is acknowledged.",
    "kind", values=FAILURE_KINDS,
)  # fmt: skip
SNAPSHOT_SECONDS = _metric(
    "sfd_snapshot_seconds", "seconds",
    "From a durable checkpoint to its snapshot's acknowledgement.", buckets=STORE_BUCKETS,
)  # fmt: skip
SNAPSHOT_BYTES = _metric("sfd_snapshot_bytes", "bytes", "Size of the newest snapshot, encoded.", "partition")
SNAPSHOT_AGE = _metric(
    "sfd_snapshot_age_seconds", "seconds",
    "The age of the oldest row that is in no acknowledged snapshot; 0 when all rows are, also on an idle topic.",
    "partition",
)  # fmt: skip

# The loop and its surroundings

POLL_GAP = _metric("sfd_poll_gap_seconds", "seconds", "Time between two polls of the consumer.", buckets=POLL_BUCKETS)
LOOP_IDLE = _metric("sfd_loop_idle_seconds", "seconds", "Time since the loop last turned.")
BROKER_AWAY = _metric("sfd_broker_away_seconds", "seconds", "For how long no broker has answered; 0 when one does.")
OUTSIDE_GROUP = _metric(
    "sfd_outside_group_seconds", "seconds",
    "For how long the worker has not been a member of its consumer group although a broker answers; 0 for a member.",
)  # fmt: skip
MEMORY = _metric("sfd_resident_memory_bytes", "bytes", "Memory that the process holds.")
MEMORY_RESERVED = _metric("sfd_reserved_memory_bytes", "bytes", "The most that the partitions in memory may need.")
MEMORY_MAX = _metric("sfd_max_memory_bytes", "bytes", "worker.memory_max_bytes.")
CPU_SECONDS = _metric("sfd_cpu_seconds_total", "seconds", "CPU time of the process.")
START_TIME = _metric(
    "sfd_start_time_seconds", "seconds", "When the worker started, since 1970; each change is a restart."
)
UP = _metric("sfd_worker_up", "1", "1 for a worker that answers; 0 for one that its supervisor starts again.")
BUILD_INFO = _metric(
    "sfd_build_info", "1", "Always 1; the labels have the versions.", "version", "python", "librdkafka"
)
KAFKA_RTT = _metric("sfd_kafka_rtt_seconds", "seconds", "Mean round trip to a broker, by librdkafka.", "broker")
KAFKA_FETCH_QUEUE = _metric(
    "sfd_kafka_fetch_queue_messages", "messages", "Messages prefetched and not yet polled, by librdkafka."
)
KAFKA_TRANSMIT_ERRORS = _metric(
    "sfd_kafka_transmit_errors_total", "requests", "Requests that could not be sent, by librdkafka.", "broker"
)


FAILURES: Mapping[str, Metric] = {
    "claim": RESTORE_FAILURES,
    "checkpoint": CHECKPOINT_FAILURES,
    "publication": SNAPSHOT_FAILURES,
    "retention": RETENTION_FAILURES,
}
"""By the kind of the job that failed."""


OF_ANY_PROCESS = (LOOP_IDLE, MEMORY, CPU_SECONDS, START_TIME, UP, BUILD_INFO)
"""Exported by every service, so that one alert on each holds for all."""

# "sfd-stream merge"

MERGE_WORKER = "merge"
"""In place of a worker's name."""

MERGES = _metric("sfd_merge_snapshots_total", "snapshots", "Merged snapshots acknowledged.")
MERGE_FAILURES = _metric(
    "sfd_merge_failures_total", "merges",
    "Merges that were not published, by kind: a part that could not be fetched, a message not acknowledged.",
    "kind", values=MERGE_FAILURE_KINDS,
)  # fmt: skip
MERGE_SECONDS = _metric(
    "sfd_merge_seconds", "seconds", "Time to fetch what is referred to and to merge all parts.", buckets=STORE_BUCKETS
)
MERGE_AGE = _metric(
    "sfd_merge_age_seconds", "seconds",
    "Time since the newest merge was acknowledged; an unchanged one is published again every merge.republish_s.",
)  # fmt: skip
MERGE_PARTS = _metric(
    "sfd_merge_parts", "partitions",
    "Input partitions that the newest merge holds, and that it misses.", "state", values=PART_STATES,
)  # fmt: skip
MERGE_PART_AGE = _metric("sfd_merge_oldest_part_seconds", "seconds", "Age of the oldest snapshot in the newest merge.")
MERGE_ROWS = _metric("sfd_merge_rows", "rows", "Rows that the newest merge counts.")
MERGE_DELTA_RATIO = _metric("sfd_merge_delta_ratio", "ratio", "The newest merge's error bound delta over ||A||F^2.")
MERGE_FAILURE_PROBABILITY = _metric(
    "sfd_merge_failure_probability_ratio", "ratio",
    "The probability that the certified error bound of the newest merge is wrong.",
)  # fmt: skip
MERGE_BYTES = _metric("sfd_merge_bytes", "bytes", "Size of the newest merge, encoded.")

# "sfd-stream score"

SCORE_WORKER = "score"
"""In place of a worker's name."""

SCORE_MESSAGES = _metric("sfd_score_messages_total", "messages", "Messages read from the input topic.", "partition")
SCORE_DEAD_LETTERS = _metric(
    "sfd_score_dead_letters_total", "messages",
    "Messages that are not rows, sent to the dead-letter topic, by the decoder's reason.",
    "reason", values=DECODE_REASONS,
)  # fmt: skip
SCORE_ROWS = _metric("sfd_score_rows_total", "rows", "Rows scored, with their offsets committed.", "partition")
SCORE_WRITTEN = _metric("sfd_score_written_total", "messages", "Scores written to score.topic.", "partition")
SCORE_REPORTED = _metric(
    "sfd_score_reported_total", "rows",
    "Rows that reached a threshold of score.when, by the score; a row may reach several.", "kind", values=SCORE_KINDS,
)  # fmt: skip
SCORE_OVER_MEAN = _metric(
    "sfd_score_residual_over_mean", "ratio",
    "Each row's residual over the mean residual of the sketch.", buckets=OVER_MEAN_BUCKETS,
)  # fmt: skip
SCORE_FAILURES = _metric(
    "sfd_score_delivery_failures_total", "attempts",
    "Failed attempts to deliver scores; they are repeated until they succeed.",
)  # fmt: skip
SCORE_LAG = _metric("sfd_score_lag_messages", "messages", "Messages whose scores are not delivered yet.", "partition")
SCORE_BASIS_AGE = _metric("sfd_score_basis_age_seconds", "seconds", "Age of the oldest snapshot in the newest basis.")
SCORE_BASIS_ROWS = _metric("sfd_score_basis_rows", "rows", "Rows of the sketch that the newest basis is of.")
SCORE_DRIFT_BLOCKS = _metric(
    "sfd_score_drift_blocks", "blocks",
    "Blocks of rows compared with drift.reference so far; the first 40 are the baseline of all others.", "partition",
)  # fmt: skip
SCORE_DRIFT_BASELINE = _metric(
    "sfd_score_drift_baseline_ratio", "ratio",
    "Mean share of a row's energy outside drift.reference, over the blocks of the baseline.", "partition",
)  # fmt: skip
SCORE_DRIFT_OUTSIDE = _metric(
    "sfd_score_drift_outside_ratio", "ratio",
    "Mean share of a row's energy outside drift.reference, over the newest blocks: those that deviate most.",
    "partition",
)  # fmt: skip
SCORE_DRIFT_LOWER = _metric(
    "sfd_score_drift_change_lower_ratio", "ratio",
    "The least that this share has changed since the baseline, beyond sampling noise at level drift.alpha.",
    "partition",
)  # fmt: skip
SCORE_DRIFT_UPPER = _metric(
    "sfd_score_drift_change_upper_ratio", "ratio",
    "The most that this share has changed since the baseline.", "partition",
)  # fmt: skip
SCORE_DRIFT_P_VALUE = _metric(
    "sfd_score_drift_p_value", "probability",
    "The probability of such a change by chance, over all tests so far, if blocks are independent.", "partition",
)  # fmt: skip
SCORE_DRIFT_SIGNIFICANT = _metric(
    "sfd_score_drift_significant", "boolean",
    "1 where the rows of the partition have changed beyond sampling noise since drift.reference was pinned, else 0.",
    "partition",
)  # fmt: skip
SCORE_DRIFT_ANGLE_BASELINE = _metric(
    "sfd_score_drift_angle_baseline_degrees", "degrees",
    "Angle between drift.reference and the directions that rows follow, over the blocks of the baseline, sampling noise"
    " included.",
    "partition",
)  # fmt: skip
SCORE_DRIFT_ANGLE = _metric(
    "sfd_score_drift_angle_degrees", "degrees",
    "The same angle over the newest blocks: those that deviate most.",
    "partition",
)  # fmt: skip
SCORE_DRIFT_ANGLE_LOWER = _metric(
    "sfd_score_drift_angle_lower_degrees", "degrees",
    "The least that this angle is, beyond sampling noise at level drift.alpha; above the baseline's where directions"
    " have turned.",
    "partition",
)  # fmt: skip
SCORE_DRIFT_ANGLE_UPPER = _metric(
    "sfd_score_drift_angle_upper_degrees", "degrees", "The most that this angle is.",
    "partition",
)  # fmt: skip
SCORE_DRIFT_ANGLE_P_VALUE = _metric(
    "sfd_score_drift_angle_p_value", "probability",
    "The probability of such a change of the angle by chance, over all tests so far, if blocks are independent.",
    "partition",
)  # fmt: skip
SCORE_DRIFT_ANGLE_SIGNIFICANT = _metric(
    "sfd_score_drift_angle_significant", "boolean",
    "1 where this angle has changed beyond sampling noise, else 0. It changes with small turns of the directions, of"
    " which the share of energy has no trace.",
    "partition",
)  # fmt: skip


def declared(by: Service = "worker") -> tuple[Metric, ...]:
    """All metrics of that service, in the order above."""
    return tuple(value for value in globals().values() if isinstance(value, Metric) and value.by == by)
