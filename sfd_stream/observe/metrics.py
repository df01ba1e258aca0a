"""Every metric that is exported, declared once: name, kind, unit, help and labels.

`docs/reference/metrics.md` is made of this.

Names follow Prometheus' conventions: `sfd_` first, the base unit last, `_total` for what only grows. Every series also
carries the labels `worker`, `group` and `topic`. No label's set of values grows with time: partitions, the decoder's
reasons, kinds that are listed here, and brokers are all there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
Service = Literal["worker", "merge", "score"]

WORKER_LABELS = ("worker", "group", "topic")
"""On every series: which worker of the process, and whom it works for."""

SHRINK_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""From a small sketch's few milliseconds to a wide one's half minute."""

STORE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""From a local disk's fsync to a store that was unavailable for minutes."""

POLL_BUCKETS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0)
"""300 s is the default of max.poll.interval.ms: after it the group revokes the partitions."""

OVER_MEAN_BUCKETS = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)
"""In units of the mean residual: half of the rows are near 1, what is worth a look is far above."""

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
    """The values of the last label where they are a fixed set: those series exist from the start, at zero."""
    by: Service = "worker"
    """Who exports it."""

    @property
    def series(self) -> tuple[str, ...]:
        """The names that a query may use."""
        if self.kind != "histogram":
            return (self.name,)
        return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")


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

MESSAGES = Metric("sfd_messages_total", "counter", "messages", "Messages read from the input topic.", ("partition",))
ROWS = Metric("sfd_rows_total", "counter", "rows", "Rows decoded and handed to the sketch.", ("partition",))
NONZEROS = Metric("sfd_nonzeros_total", "counter", "non-zeros", "Non-zeros of those rows.", ("partition",))
INPUT_BYTES = Metric("sfd_input_bytes_total", "counter", "bytes", "Bytes of message values read.", ("partition",))
TOMBSTONES = Metric(
    "sfd_tombstones_total", "counter", "messages", "Messages without a value: skipped and counted.", ("partition",)
)
DEAD_LETTERS = Metric(
    "sfd_dead_letters_total", "counter", "messages",
    "Messages that are not rows, sent to the dead-letter topic, by the decoder's reason.", ("reason",),
    values=DECODE_REASONS,
)  # fmt: skip

# How far behind

APPLIED_OFFSET = Metric(
    "sfd_applied_offset", "gauge", "offset",
    "The next offset after all that the sketch holds; of a partition not read yet, where reading will begin.",
    ("partition",),
)  # fmt: skip
COMMITTED_OFFSET = Metric(
    "sfd_committed_offset", "gauge", "offset", "The last offset that the broker acknowledged as committed.",
    ("partition",),
)  # fmt: skip
END_OFFSET = Metric("sfd_end_offset", "gauge", "offset", "The end of the partition's log.", ("partition",))
LAG = Metric("sfd_lag_messages", "gauge", "messages", "End offset minus applied offset.", ("partition",))
STUCK = Metric(
    "sfd_partition_stuck_seconds", "gauge", "seconds",
    "How long a partition has made no progress while its lag grew, or its claim has not progressed, or it has delivered"
    " no record for a minute or more although it has some and is not paused; 0 otherwise.", ("partition",),
)  # fmt: skip
PARTITIONS = Metric(
    "sfd_partitions", "gauge", "partitions",
    "Assigned partitions by what is done with them: waiting (no room in memory), claiming, reading, paused"
    " (the store does not keep up), finished.", ("state",), values=STATES,
)  # fmt: skip

# How good the sketch is

SHRINK_SECONDS = Metric(
    "sfd_shrink_seconds", "histogram", "seconds", "Time of one shrink of a full buffer into the sketch.",
    buckets=SHRINK_BUCKETS,
)  # fmt: skip
VERIFICATIONS = Metric(
    "sfd_verifications_total", "counter", "verifications", "Verifications of a shrink's error, passed or not.",
    ("partition",),
)  # fmt: skip
VERIFY_RETRIES = Metric(
    "sfd_verify_retries_total", "counter", "verifications",
    "Verifications after a failed one of the same shrink; their share of all is sfd:verify_retries:share5m.",
    ("partition",),
)  # fmt: skip
DELTA_RATIO = Metric(
    "sfd_delta_ratio", "gauge", "ratio", "The certified error bound delta over ||A||F^2.", ("partition",)
)
FAILURE_PROBABILITY = Metric(
    "sfd_failure_probability_ratio", "gauge", "ratio",
    "How likely the certified error bound of the partition may be wrong, over its whole stream. The sum over all"
    " partitions is that of the merged topic.",
    ("partition",),
)  # fmt: skip
PROMISED_RATIO = Metric(
    "sfd_delta_promised_ratio", "gauge", "ratio",
    "What the theorem promises for this ell at worst: 41/(6 ell), at most 1; none for the unverified method.",
)  # fmt: skip
DRIFT = Metric(
    "sfd_subspace_drift_ratio", "gauge", "ratio",
    "Mean squared sine of the angles between the first directions now and one look before: 0 same, 1 orthogonal.",
    ("partition",),
)  # fmt: skip
BUFFER_FILL = Metric(
    "sfd_buffer_fill_ratio", "gauge", "ratio", "How full the buffer of rows not yet shrunk is.", ("partition",)
)

# Checkpoints

CHECKPOINTS = Metric("sfd_checkpoints_total", "counter", "checkpoints", "Checkpoints made durable.", ("partition",))
CHECKPOINT_SECONDS = Metric(
    "sfd_checkpoint_seconds", "histogram", "seconds", "From freezing a state to its manifest being in the store.",
    buckets=STORE_BUCKETS,
)  # fmt: skip
CHECKPOINT_BYTES = Metric(
    "sfd_checkpoint_bytes_total", "counter", "bytes", "Bytes of blobs written for checkpoints.", ("partition",)
)
CHECKPOINT_FAILURES = Metric(
    "sfd_checkpoint_failures_total", "counter", "attempts",
    "Failed attempts at a checkpoint, by kind; unavailable ones are made again until checkpoint.give_up_s is over.",
    ("kind",), values=FAILURE_KINDS,
)  # fmt: skip
RETENTION_FAILURES = Metric(
    "sfd_retention_failures_total", "counter", "attempts", "Failed attempts to remove old checkpoints, by kind.",
    ("kind",), values=FAILURE_KINDS,
)  # fmt: skip
CHECKPOINT_AGE = Metric(
    "sfd_checkpoint_age_seconds", "gauge", "seconds",
    "The age of the oldest row that is not durable yet; 0 when all are. An idle topic is not old.", ("partition",),
)  # fmt: skip
MANIFEST_NUMBER = Metric("sfd_manifest_number", "gauge", "number", "The newest manifest's number.", ("partition",))
MANIFEST_EPOCH = Metric("sfd_manifest_epoch", "gauge", "epoch", "The owner's epoch.", ("partition",))
FENCES = Metric("sfd_fences_total", "counter", "fences", "Partitions dropped because another owner's manifest was met.")

# Rebalances

REBALANCES = Metric(
    "sfd_rebalances_total", "counter", "rebalances", "Rebalances that gave or took partitions, by kind.", ("kind",),
    values=REBALANCE_KINDS,
)  # fmt: skip
RESTORE_SECONDS = Metric(
    "sfd_restore_seconds", "histogram", "seconds", "From assignment to a restored state, one partition.",
    buckets=STORE_BUCKETS,
)  # fmt: skip
RESTORE_FAILURES = Metric(
    "sfd_restore_failures_total", "counter", "attempts", "Failed attempts to take a partition over, by kind.",
    ("kind",), values=FAILURE_KINDS,
)  # fmt: skip
RESTORED_ROWS = Metric("sfd_restored_rows_total", "counter", "rows", "Rows that restored states had counted already.")
REPLAY_SECONDS = Metric(
    "sfd_replay_seconds", "histogram", "seconds",
    "From a restored state to the log's end as it was then, one partition.", buckets=CATCH_UP_BUCKETS,
)  # fmt: skip
REPLAYED_ROWS = Metric(
    "sfd_replayed_rows_total", "counter", "rows", "Rows read from restored states up to the log's end as it was then."
)

# Snapshots

SNAPSHOTS = Metric("sfd_snapshots_total", "counter", "snapshots", "Snapshots acknowledged.", ("partition",))
SNAPSHOT_FAILURES = Metric(
    "sfd_snapshot_failures_total", "counter", "attempts",
    "Failed attempts to show a snapshot, by kind; it stays due until it is acknowledged.",
    ("kind",), values=FAILURE_KINDS,
)  # fmt: skip
SNAPSHOT_SECONDS = Metric(
    "sfd_snapshot_seconds", "histogram", "seconds", "From a durable checkpoint to its snapshot's acknowledgement.",
    buckets=STORE_BUCKETS,
)  # fmt: skip
SNAPSHOT_BYTES = Metric("sfd_snapshot_bytes", "gauge", "bytes", "Size of the newest snapshot, encoded.", ("partition",))
SNAPSHOT_AGE = Metric(
    "sfd_snapshot_age_seconds", "gauge", "seconds",
    "The age of the oldest row that no acknowledged snapshot shows; 0 when all are shown. An idle topic is not old.",
    ("partition",),
)  # fmt: skip

# The loop and its surroundings

POLL_GAP = Metric(
    "sfd_poll_gap_seconds", "histogram", "seconds", "Time between two polls of the consumer.", buckets=POLL_BUCKETS
)
LOOP_IDLE = Metric("sfd_loop_idle_seconds", "gauge", "seconds", "Time since the loop last turned.")
BROKER_AWAY = Metric(
    "sfd_broker_away_seconds", "gauge", "seconds", "For how long no broker has answered; 0 when one does."
)
OUTSIDE_GROUP = Metric(
    "sfd_outside_group_seconds", "gauge", "seconds",
    "For how long the worker has not been a member of its consumer group although a broker answers; 0 for a member.",
)  # fmt: skip
MEMORY = Metric("sfd_resident_memory_bytes", "gauge", "bytes", "Memory that the process holds.")
MEMORY_RESERVED = Metric(
    "sfd_reserved_memory_bytes", "gauge", "bytes", "The most that the partitions in memory may need."
)
MEMORY_MAX = Metric("sfd_max_memory_bytes", "gauge", "bytes", "worker.memory_max_bytes.")
CPU_SECONDS = Metric("sfd_cpu_seconds_total", "counter", "seconds", "CPU time of the process.")
START_TIME = Metric(
    "sfd_start_time_seconds", "gauge", "seconds", "When the worker started, since 1970; each change is a restart."
)
UP = Metric("sfd_worker_up", "gauge", "1", "1 for a worker that answers; 0 for one that its supervisor starts again.")
BUILD_INFO = Metric(
    "sfd_build_info", "gauge", "1", "What runs: always 1, the labels tell.", ("version", "python", "librdkafka")
)
KAFKA_RTT = Metric(
    "sfd_kafka_rtt_seconds", "gauge", "seconds", "Mean round trip to a broker, by librdkafka.", ("broker",)
)
KAFKA_FETCH_QUEUE = Metric(
    "sfd_kafka_fetch_queue_messages", "gauge", "messages", "Messages prefetched and not yet polled, by librdkafka."
)
KAFKA_TRANSMIT_ERRORS = Metric(
    "sfd_kafka_transmit_errors_total", "counter", "requests", "Requests that could not be sent, by librdkafka.",
    ("broker",),
)  # fmt: skip


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

MERGES = Metric("sfd_merge_snapshots_total", "counter", "snapshots", "Merged snapshots acknowledged.", by="merge")
MERGE_FAILURES = Metric(
    "sfd_merge_failures_total", "counter", "merges",
    "Merges that were not published, by kind: a part that could not be fetched, a message not acknowledged.",
    ("kind",), values=MERGE_FAILURE_KINDS, by="merge",
)  # fmt: skip
MERGE_SECONDS = Metric(
    "sfd_merge_seconds", "histogram", "seconds", "Time to fetch what is referred to and to merge all parts.",
    buckets=STORE_BUCKETS, by="merge",
)  # fmt: skip
MERGE_AGE = Metric(
    "sfd_merge_age_seconds", "gauge", "seconds",
    "Time since the newest merge was acknowledged; an unchanged one is published again every merge.republish_s.",
    by="merge",
)  # fmt: skip
MERGE_PARTS = Metric(
    "sfd_merge_parts", "gauge", "partitions", "Input partitions that the newest merge holds, and that it misses.",
    ("state",), values=PART_STATES, by="merge",
)  # fmt: skip
MERGE_PART_AGE = Metric(
    "sfd_merge_oldest_part_seconds", "gauge", "seconds", "Age of the oldest snapshot in the newest merge.", by="merge"
)
MERGE_ROWS = Metric("sfd_merge_rows", "gauge", "rows", "Rows that the newest merge counts.", by="merge")
MERGE_DELTA_RATIO = Metric(
    "sfd_merge_delta_ratio", "gauge", "ratio", "The newest merge's error bound delta over ||A||F^2.", by="merge"
)
MERGE_FAILURE_PROBABILITY = Metric(
    "sfd_merge_failure_probability_ratio", "gauge", "ratio",
    "How likely the certified error bound of the newest merge may be wrong.", by="merge",
)  # fmt: skip
MERGE_BYTES = Metric("sfd_merge_bytes", "gauge", "bytes", "Size of the newest merge, encoded.", by="merge")

# "sfd-stream score"

SCORE_WORKER = "score"
"""In place of a worker's name."""

SCORE_MESSAGES = Metric(
    "sfd_score_messages_total", "counter", "messages", "Messages read from the input topic.", ("partition",), by="score"
)
SCORE_DEAD_LETTERS = Metric(
    "sfd_score_dead_letters_total", "counter", "messages",
    "Messages that are not rows, sent to the dead-letter topic, by the decoder's reason.", ("reason",),
    values=DECODE_REASONS, by="score",
)  # fmt: skip
SCORE_ROWS = Metric(
    "sfd_score_rows_total", "counter", "rows", "Rows scored, with their offsets committed.", ("partition",), by="score"
)
SCORE_WRITTEN = Metric(
    "sfd_score_written_total", "counter", "messages", "Scores written to score.topic.", ("partition",), by="score"
)
SCORE_REPORTED = Metric(
    "sfd_score_reported_total", "counter", "rows",
    "Rows that reached a threshold of score.when, by the score; a row may reach several.", ("kind",),
    values=SCORE_KINDS, by="score",
)  # fmt: skip
SCORE_OVER_MEAN = Metric(
    "sfd_score_residual_over_mean", "histogram", "ratio", "Each row's residual over the mean residual of the sketch.",
    buckets=OVER_MEAN_BUCKETS, by="score",
)  # fmt: skip
SCORE_FAILURES = Metric(
    "sfd_score_delivery_failures_total", "counter", "attempts",
    "Failed attempts to deliver scores; they are repeated until they succeed.", by="score",
)  # fmt: skip
SCORE_LAG = Metric(
    "sfd_score_lag_messages", "gauge", "messages", "Messages whose scores are not delivered yet.", ("partition",),
    by="score",
)  # fmt: skip
SCORE_BASIS_AGE = Metric(
    "sfd_score_basis_age_seconds", "gauge", "seconds", "Age of the oldest snapshot in the newest basis.", by="score"
)
SCORE_BASIS_ROWS = Metric(
    "sfd_score_basis_rows", "gauge", "rows", "Rows of the sketch that the newest basis is of.", by="score"
)
SCORE_DRIFT_BLOCKS = Metric(
    "sfd_score_drift_blocks", "gauge", "blocks",
    "Blocks of rows compared with drift.reference so far; the first 40 are the baseline of all others.",
    ("partition",), by="score",
)  # fmt: skip
SCORE_DRIFT_BASELINE = Metric(
    "sfd_score_drift_baseline_ratio", "gauge", "ratio",
    "Mean share of a row's energy outside drift.reference, over the blocks of the baseline.",
    ("partition",), by="score",
)  # fmt: skip
SCORE_DRIFT_OUTSIDE = Metric(
    "sfd_score_drift_outside_ratio", "gauge", "ratio",
    "Mean share of a row's energy outside drift.reference, over the newest blocks: those that deviate most.",
    ("partition",), by="score",
)  # fmt: skip
SCORE_DRIFT_LOWER = Metric(
    "sfd_score_drift_change_lower_ratio", "gauge", "ratio",
    "The least that this share has changed since the baseline, beyond sampling noise at level drift.alpha.",
    ("partition",), by="score",
)  # fmt: skip
SCORE_DRIFT_UPPER = Metric(
    "sfd_score_drift_change_upper_ratio", "gauge", "ratio", "The most that this share has changed since the baseline.",
    ("partition",), by="score",
)  # fmt: skip
SCORE_DRIFT_P_VALUE = Metric(
    "sfd_score_drift_p_value", "gauge", "probability",
    "The probability of such a change by chance, over all looks so far, if blocks are independent.",
    ("partition",), by="score",
)  # fmt: skip
SCORE_DRIFT_SIGNIFICANT = Metric(
    "sfd_score_drift_significant", "gauge", "boolean",
    "1 where the rows of the partition have changed beyond sampling noise since drift.reference was pinned, else 0.",
    ("partition",), by="score",
)  # fmt: skip


def declared(by: Service = "worker") -> tuple[Metric, ...]:
    """All of that service, in the order above."""
    return tuple(value for value in globals().values() if isinstance(value, Metric) and value.by == by)


def markdown() -> str:
    """`docs/reference/metrics.md`."""
    workers, merges, scores = declared(), declared("merge"), declared("score")
    labels = ", ".join(f"`{label}`" for label in WORKER_LABELS)
    shared = ", ".join(f"`{metric.name}`" for metric in OF_ANY_PROCESS)
    lines = [
        "# Metrics",
        "",
        "Made by `sfd-stream metrics` from `sfd_stream/observe/metrics.py`; a test says when it is stale.",
        f"Every series also has the labels {labels}.",
        "",
        *_table(workers),
        "",
        "## Of `sfd-stream merge`",
        "",
        f'Their `worker` is "{MERGE_WORKER}", their `topic` the one that it publishes to. It also exports {shared}.',
        "",
        *_table(merges),
        "",
        "## Of `sfd-stream score`",
        "",
        f'Their `worker` is "{SCORE_WORKER}", their `topic` the one that it reads. It also exports {shared}.',
        "",
        *_table(scores),
    ]
    every = (*workers, *merges, *scores)
    lines += ["", "## Labels with a fixed set of values", ""]
    lines += [f"- `{m.name}`: {', '.join(f'`{value}`' for value in m.values)}" for m in every if m.values]
    lines += ["", "## Buckets of histograms, in their unit", ""]
    lines += [f"- `{m.name}`: {', '.join(f'{edge:g}' for edge in m.buckets)}" for m in every if m.buckets]
    return "\n".join(lines) + "\n"


def _table(metrics: Iterable[Metric]) -> list[str]:
    lines = ["| name | kind | unit | labels | meaning |", "|---|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        help_text = metric.help.replace("|", "\\|")
        lines.append(f"| `{metric.name}` | {metric.kind} | {metric.unit} | {labels} | {help_text} |")
    return lines
