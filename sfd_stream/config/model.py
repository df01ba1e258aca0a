"""The settings as one frozen tree: every key with its type, default and description, in the order of the reference.

    kafka  schema_registry  input  sketch  checkpoint  snapshot  merge  score  drift  dead_letters  http  worker  log

Checks of one field are at the field, checks of several fields in `checks.py`. No repr, dump or error of these classes
contains a secret.
"""

# Annotations are evaluated: pydantic reads them.
import warnings
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import ValidationInfo

from sfd_stream.config import checks
from sfd_stream.config.secrets import mask, secret_values
from sfd_stream.config.types import (
    FeatureSettings,
    OpenMapping,
    Scalar,
    Seconds,
    SizeBytes,
    StoreUrl,
    StoreUrls,
    ThresholdSettings,
    Topic,
    Topics,
)
from sfd_stream.wire.rows.part import RowLimits

LIMITS = RowLimits()
"""Default limits of one message."""

# Column indices are 32-bit integers in memory.
_D_LIMIT = 2**31 - 1

# `input.schema` hides a deprecated method of pydantic that nothing calls.
warnings.filterwarnings("ignore", message='Field name "schema" in "InputSettings" shadows', category=UserWarning)

Count = Annotated[int, Field(ge=1)]
Columns = Annotated[int, Field(ge=1, le=_D_LIMIT)]


class Section(BaseModel):
    """A section of the tree: frozen, without unknown keys, with masked secrets. A field's docstring describes it."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        coerce_numbers_to_str=True,
        use_attribute_docstrings=True,
        defer_build=True,  # the schema is built at the first use: with the descriptions as they are set below
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Makes each description one line. A docstring in the source may have several."""
        for field in cls.model_fields.values():
            field.description = field.description and " ".join(field.description.split())

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_not_one(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise PydanticCustomError("bool_for_other", "must not be true or false")
        return value

    @model_serializer(mode="wrap")
    def _dump_masked(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: mask(name, value) for name, value in handler(self).items()}

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name in type(self).model_fields:
            value = getattr(self, name)
            yield name, mask(name, value) if isinstance(value, Scalar) else value


class InputSettings(Section):
    """The topic of rows and the format of its messages."""

    topic: Topic = Field(examples=["rows"])
    """The topic of rows to read."""
    columns: Literal["fixed", "growing", "hashed"] = "fixed"
    """How columns are numbered: fixed (sketch.d of them; another index is a bad row), growing (as many as the largest
    index seen, up to input.d_max) or hashed (features by name, hashed to sketch.d columns).
    """
    format: Literal["msgpack", "json", "avro", "protobuf"] = "msgpack"
    """What a message is: msgpack (rows of columns and values), or records of named fields as json, avro or protobuf,
    for hashed columns. With schema_registry.url, records are in Confluent's wire format.
    """
    schema: str | None = None  # type: ignore[assignment]  # a deprecated method of pydantic's has this name
    """A file with the schema of raw messages: an Avro schema, or for protobuf a descriptor set (protoc
    --include_imports --descriptor_set_out) or a .proto file; null where a registry has the schemas.
    """
    message: str | None = None
    """The full name of the message in input.schema, like shop.Event (protobuf)."""
    path: str | None = None
    """The part of a message that is the record, or a list of records, like data (CloudEvents) or payload.after
    (Debezium); null is the whole message (records).
    """
    features: FeatureSettings = Field(default={}, validate_default=True)
    """How fields become features: include and exclude (lists of paths, with *) and fields (path: categorical, log1p,
    {scale: 0.01}, {clip: [0, 100]}, text, vector, {indices: a, values: b}, each, ignore). A state made with others is
    refused (records).
    """
    start: Literal["earliest", "latest"] = "earliest"
    """Where a partition starts that has neither a checkpoint nor a committed offset. One that is added to the topic
    while its worker runs starts at its beginning.
    """
    max_message_bytes: SizeBytes = LIMITS.message_bytes_max
    """A message larger than this is a bad message."""
    max_message_nnz: Count = LIMITS.nnz_max
    """A message with more non-zeros than this is a bad message."""
    max_message_rows: Count = LIMITS.rows_max
    """A message with more rows than this is a bad message."""
    max_name_bytes: SizeBytes = LIMITS.string_bytes_max
    """A feature's name longer than this makes a bad message (hashed)."""
    d_max: Columns = 2**20
    """The maximum number of columns; a row with a larger index is bad (growing)."""
    hash_seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    """The seed of the hash; a state made with another seed is refused (hashed)."""
    keep_names: bool = True
    """Whether to keep the first name seen for each column, to read directions by (hashed)."""
    names_max: Count = 100_000
    """The most names to keep for each partition (hashed)."""

    @property
    def limits(self) -> RowLimits:
        return RowLimits(self.max_message_bytes, self.max_message_nnz, self.max_message_rows, self.max_name_bytes)


class SketchSettings(Section):
    """The sketch: its shape, method and failure probability."""

    d: Columns | None = Field(default=None, examples=[1000])
    """The number of columns: required for fixed and hashed columns, the width to start with for growing ones."""
    ell: Count = 50
    """The maximum number of rows of the sketch. A larger ell gives a smaller error and needs more memory and time."""
    method: Literal["fused", "paper", "sparse-shrink"] = "fused"
    """How to shrink: fused (fast, verified), paper (the published algorithm, unchanged) or sparse-shrink
    (unverified, for comparison).
    """
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    """The seed of all randomness; the same rows and seed give the same bits."""
    failure_probability: Annotated[float, Field(gt=0, lt=1)] = 0.01
    """The probability that the certified error bound of the merged topic is wrong at any time in its stream. Partition
    j takes the share 6/(pi^2 (j+1)^2) of it.
    """
    half_life_rows: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """After this many rows a row's weight has halved; null never forgets."""
    buffer_factor: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 4.0
    """Shrink when the buffer holds this many times ell * d non-zeros; more is faster."""
    buffer_max_bytes: SizeBytes = 256 * 2**20
    """The maximum size of the buffer, which is shrunk when it reaches this size."""
    column_squares: bool = False
    """Whether to sum up the squares of each column, too, for z-scores of causes and advice on scaling. A partition that
    has shrunk rows without it continues without it.
    """


class CheckpointSettings(Section):
    """Where checkpoints are stored and how often they are written."""

    url: StoreUrl = Field(examples=["file:///tmp/sfd-stream/checkpoints"])
    """Where checkpoints live: file:///path, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or memory://
    (for tests); all workers of a group must see the same place.
    """
    options: OpenMapping = Field(default={}, validate_default=True)
    """Options for the object store, like region or endpoint; put keys into the environment."""
    file_access: Literal["owner", "group", "everyone"] = "owner"
    """Who may use the files in a checkpoint folder: owner (0600), group (its members read and write, 0660) or everyone
    (all read, 0644). Object stores have their own rights.
    """
    every_rows: Count = 100_000
    """Write a checkpoint after this many rows of a partition."""
    every_s: Seconds = 30.0
    """Write a checkpoint when the oldest row that is not durable yet is this old."""
    keep: Count = 5
    """How many older states to keep for rollback."""
    revoke_budget_s: Seconds = 10.0
    """The maximum time for the last checkpoint when a partition is released or the worker stops."""
    give_up_s: Seconds = 600.0
    """Exit with code 5 when the broker or the store has been unavailable for this long."""


class SnapshotSettings(Section):
    """The published snapshots."""

    topic: Topic | None = None
    """The compacted topic to publish snapshots to; null publishes none."""
    every_s: Seconds | None = 60.0
    """Publish a changed sketch this often; null: only every_rows decides."""
    every_rows: Count | None = None
    """Publish after this many rows of a partition; null: only every_s decides."""
    republish_s: Seconds = 600.0
    """Publish the newest snapshot again this often, even when the topic is idle (idempotent)."""
    inline_max_bytes: SizeBytes = 900_000
    """A larger snapshot is published as a reference to the checkpoint store."""
    dtype: Literal["float64", "float32"] = "float64"
    """The numbers' width; float32 halves the size and adds its rounding to the error bound."""
    delivery: Literal["idempotent", "transactional"] = "idempotent"
    """idempotent, or transactional: snapshot and offset in one Kafka transaction, so that read_committed readers get
    each state exactly once.
    """
    column_sums: bool = True
    """Whether snapshots carry the column sums, which centred PCA needs."""
    column_names: bool = True
    """Whether snapshots carry the columns' names (hashed)."""
    trusted_stores: StoreUrls | None = None
    """Stores besides checkpoint.url from which merge and the commands that read fetch referenced snapshots, separated
    by commas; null trusts no other.
    """
    read_max_bytes: SizeBytes = 2**30
    """The maximum size in memory of a snapshot that merge and the reading commands decode."""


class MergeSettings(Section):
    """The topics and times of "sfd-stream merge", which publishes one sketch of many."""

    topics: Topics | None = None
    """The snapshot topics to merge, separated by commas; null takes snapshot.topic."""
    group: str | None = None
    """The group whose snapshots to merge, where a topic holds several; null takes all."""
    topic: Topic | None = None
    """The compacted topic to publish the merged sketch to."""
    every_s: Seconds = 10.0
    """Publish a changed merge at most this often."""
    republish_s: Seconds = 600.0
    """Publish the newest merge again this often, even when nothing has changed."""
    ell: Count | None = None
    """The most rows that the merged sketch may have; null takes the largest of its parts."""


class ScoreSettings(Section):
    """What "sfd-stream score" writes about each row of the input topic."""

    topic: Topic | None = None
    """The topic to write scores to."""
    group: str | None = Field(default=None, min_length=1)
    """The consumer group of the scorer; null takes kafka.group.id with "-score" behind it."""
    when: ThresholdSettings = Field(default={}, validate_default=True)
    """Write only extreme rows, with their causes: those whose p-value is at most p_max, or whose residual over the mean
    or T^2 is certainly at least residual_over_mean_min or t2_min. Empty writes every row, without causes.
    """
    basis: Literal["newest", "pinned"] = "newest"
    """What rows are compared with: the newest snapshots, or a basis that "sfd-stream basis pin" stored."""
    pinned: str | None = Field(default=None, min_length=1)
    """The id of the pinned basis; null takes the one that was pinned last."""
    k: Count | None = None
    """The number of directions that rows are compared with; null takes ell / 4."""
    centred: bool = True
    """Whether distances are measured from the mean of the rows (needs snapshot.column_sums) or from zero."""
    causes: Count = 5
    """The most columns to name as causes of each score of an extreme row."""
    format: Literal["json", "msgpack"] = "json"
    """How a score is written: json or msgpack."""
    delivery: Literal["transactional", "at-least-once"] = "transactional"
    """transactional (scores and offsets in one Kafka transaction: each row is scored exactly once for read_committed
    readers) or at-least-once (a row may be scored again after a failure).
    """
    state_topic: Topic | None = None
    """The compacted topic for histograms of earlier scores, from which p-values are computed; null takes score.topic
    with "-state" behind it.
    """


class DriftSettings(Section):
    """How "sfd-stream score" tests whether the stream has changed since a basis was pinned."""

    reference: str | None = Field(default=None, min_length=1)
    """The id of the pinned basis to compare rows with; null compares with none."""
    block_rows: Count = 500
    """The number of rows of a block, by partition. The first 40 blocks after the reference was pinned are the baseline;
    later blocks are compared with it. Choose ten times the number of consecutive rows that are correlated.
    """
    alpha: Annotated[float, Field(gt=0, lt=1)] = 1e-4
    """The probability that there is ever a false alarm in any partition while the process does not change."""


class DeadLetterSettings(Section):
    """The treatment of messages that are not rows."""

    topic: Topic | None = None
    """The topic for bad messages; null stops at the first one."""
    max_share: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Stop when more than this share of the messages in the window is bad."""
    window: Count = 1_000
    """The number of latest messages of a worker over which max_share is computed."""
    max_consecutive: Count = 100
    """Stop at this many bad messages in a row."""


class HttpSettings(Section):
    """The port for metrics, health and the status page."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """The address to listen on; 0.0.0.0 in a container."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 9464
    """The port for metrics, health and the status page; 0 picks a free port; the log has the address."""
    excerpts: bool = False
    """Whether the status page and /status.json contain the first bytes of bad messages (worker) or the values of
    extreme rows (scorer). Everyone who can reach the port can read them.
    """
    stuck_after_s: Seconds = 60.0
    """/healthz fails if the loop has not run for this long."""


class WorkerSettings(Section):
    """The memory and threads of one worker."""

    batch_records: Annotated[int, Field(ge=1, le=1_000_000)] = 4_000
    """The most messages to take from Kafka at once."""
    memory_max_bytes: SizeBytes = 2 * 2**30
    """The maximum memory for sketches and buffers; partitions beyond it are paused. If it is not given: 60 % of the
    container's memory limit, if there is one.
    """
    blas_threads: Count = 1
    """The number of threads for linear algebra; changing it changes the last bits of results."""


class LogSettings(Section):
    """Level and format of the log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The minimum severity of logged events."""
    format: Literal["auto", "json", "text"] = "auto"
    """json lines, text for people, or auto: text on a terminal and json otherwise."""


class Settings(Section):
    """All settings."""

    kafka: OpenMapping = Field(
        default={}, validate_default=True, examples=[{"bootstrap.servers": "localhost:9092", "group.id": "sfd-stream"}]
    )
    """librdkafka's properties, for every client; bootstrap.servers and group.id are required."""
    kafka_oauth_callback: str | None = None
    """package:function that creates tokens (OAUTHBEARER, cloud identities). Its argument is sasl.oauthbearer.config; it
    returns a token and its expiry time in seconds since the epoch.
    """
    schema_registry: OpenMapping = Field(default={}, validate_default=True)
    """Properties of confluent-kafka's schema registry client, like url, basic.auth.user.info or ssl.ca.location;
    without url no registry is used (avro, protobuf, json).
    """
    input: InputSettings
    sketch: SketchSettings = SketchSettings()
    checkpoint: CheckpointSettings
    snapshot: SnapshotSettings = SnapshotSettings()
    merge: MergeSettings = MergeSettings()
    score: ScoreSettings = ScoreSettings()
    drift: DriftSettings = DriftSettings()
    dead_letters: DeadLetterSettings = DeadLetterSettings()
    http: HttpSettings = HttpSettings()
    worker: WorkerSettings = WorkerSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _check_together(self) -> "Settings":
        found = list(checks.problems(self))
        if found:
            raise ValueError("; ".join(f"{problem.keys[0]} {problem.text}" for problem in found))
        return self

    @property
    def group(self) -> str:
        """The consumer group. It is part of every checkpoint's path and every snapshot's key."""
        return str(self.kafka["group.id"])

    @property
    def score_group(self) -> str:
        """The consumer group of the scorer."""
        return self.score.group or f"{self.group}-score"

    @property
    def score_state_topic(self) -> str:
        """The topic of the scorer's states."""
        return self.score.state_topic or f"{self.score.topic}-state"

    def secret_values(self) -> frozenset[str]:
        """All secrets of the settings as texts. The log masks them wherever they occur."""
        open_ones = (("kafka", self.kafka), ("schema_registry", self.schema_registry))
        found = (secret_values(name, part) for name, part in (*open_ones, ("checkpoint", dict(self.checkpoint))))
        return frozenset().union(*found)
