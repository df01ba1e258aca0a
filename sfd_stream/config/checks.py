"""Checks that involve several settings. Each problem names its keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sfd_stream.config import kafka_properties
from sfd_stream.config.types import size_text

if TYPE_CHECKING:
    from sfd_stream.config.model import Settings

# Defaults of librdkafka that our settings depend on.
_MESSAGE_MAX_BYTES: Final = 1_000_000
_MAX_POLL_INTERVAL_MS: Final = 300_000

P_MIN: Final = 1.5e-5
"""The least p-value of a scorer: 3/200,000, because it compares a row with at most some 200,000 earlier ones."""

_CALLBACK: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Problem:
    """The first key is the one to correct."""

    keys: tuple[str, ...]
    text: str


def problems(settings: Settings) -> Iterator[Problem]:
    """All conflicts between settings that are valid one by one."""
    for check in (_kafka, _login, _format, _columns, _topics, _snapshots, _scores, _limits):
        yield from check(settings)


def _kafka(settings: Settings) -> Iterator[Problem]:
    for name, why in (
        ("bootstrap.servers", "is required: the brokers, as host:port, separated by commas"),
        ("group.id", "is required: the consumer group, which is also part of each checkpoint's address"),
    ):
        if not str(settings.kafka.get(name, "")).strip():
            yield Problem((f"kafka.{name}",), why)
    for name, text in kafka_properties.problems(settings.kafka):
        yield Problem((f"kafka.{name}",), text)


def _login(settings: Settings) -> Iterator[Problem]:
    named = settings.kafka_oauth_callback
    if named is None:
        return
    if not isinstance(named, str) or not _CALLBACK.fullmatch(named):
        yield Problem(("kafka_oauth_callback",), "must name a function, as package.module:function")
    mechanism = settings.kafka.get("sasl.mechanism", settings.kafka.get("sasl.mechanisms"))
    if mechanism != "OAUTHBEARER":
        yield Problem(
            ("kafka_oauth_callback", "kafka.sasl.mechanism"), "does nothing unless kafka.sasl.mechanism is OAUTHBEARER"
        )


def _format(settings: Settings) -> Iterator[Problem]:
    given, registry = settings.input, bool(settings.schema_registry.get("url"))
    if given.format == "msgpack":
        yield from _only_for_records(settings)
        return
    if given.columns != "hashed":
        yield Problem(("input.columns", "input.format"), f"must be hashed where input.format is {given.format}")
    if given.format == "json" and given.schema is not None:
        yield Problem(("input.schema", "input.format"), "does nothing where input.format is json")
    elif given.format != "json" and registry == (given.schema is not None):
        required = "is required where there is no schema_registry.url"
        needs = "and a schema_registry.url: give one" if registry else required
        yield Problem(("input.schema", "input.format"), needs)
    wanted = given.format == "protobuf" and given.schema is not None
    if wanted != (given.message is not None):
        required = "is required: the full name of the message in input.schema"
        words = required if wanted else "has an effect only for protobuf with input.schema"
        yield Problem(("input.message", "input.format"), words)


def _only_for_records(settings: Settings) -> Iterator[Problem]:
    given = settings.input
    unused = {name: getattr(given, name) is not None for name in ("schema", "message", "path")}
    for name, is_set in (unused | {"features": bool(given.features.described())}).items():
        if is_set:
            yield Problem((f"input.{name}", "input.format"), "does nothing where input.format is msgpack")
    if settings.schema_registry:
        yield Problem(("schema_registry", "input.format"), "does nothing where input.format is msgpack")


def _columns(settings: Settings) -> Iterator[Problem]:
    columns, d, ell = settings.input.columns, settings.sketch.d, settings.sketch.ell
    if columns == "growing":
        if d is not None and d > settings.input.d_max:
            yield Problem(("sketch.d", "input.d_max"), f"must be at most input.d_max, which is {settings.input.d_max}")
    elif d is None:
        yield Problem(("sketch.d", "input.columns"), f"is required when input.columns is {columns}")
    elif ell > d:
        yield Problem(("sketch.ell", "sketch.d"), f"must be at most sketch.d, which is {d}")


def _topics(settings: Settings) -> Iterator[Problem]:
    topics = (
        ("input.topic", settings.input.topic),
        ("snapshot.topic", settings.snapshot.topic),
        ("merge.topic", settings.merge.topic),
        ("score.topic", settings.score.topic),
        ("score.state_topic", settings.score.state_topic),
        ("dead_letters.topic", settings.dead_letters.topic),
    )
    for i, (key, topic) in enumerate(topics):
        for other, taken in topics[:i]:
            if topic is not None and topic == taken:
                yield Problem((key, other), f"must be another topic than {other}")


def _snapshots(settings: Settings) -> Iterator[Problem]:
    snapshot = settings.snapshot
    if snapshot.topic is None:
        # A file may contain every default: only a changed value means that snapshots are wanted.
        for name, field in type(snapshot).model_fields.items():
            if getattr(snapshot, name) != field.default:
                words = "does nothing without snapshot.topic; set that too"
                yield Problem((f"snapshot.{name}", "snapshot.topic"), words)
    elif snapshot.every_s is None and snapshot.every_rows is None:
        yield Problem(("snapshot.every_s", "snapshot.every_rows"), "and snapshot.every_rows must not both be null")


def _scores(settings: Settings) -> Iterator[Problem]:
    score, snapshot = settings.score, settings.snapshot
    if score.topic is None:
        if settings.drift.reference is not None:
            yield Problem(("drift.reference", "score.topic"), "does nothing without score.topic: the scorer compares")
        return
    if score.pinned is not None and score.basis != "pinned":
        yield Problem(("score.pinned", "score.basis"), "does nothing unless score.basis is pinned")
    if snapshot.topic is None and score.basis == "newest":
        yield Problem(("snapshot.topic", "score.topic"), "is required with score.topic: rows are scored by snapshots")
    elif snapshot.topic is not None and score.centred and not snapshot.column_sums:
        yield Problem(("score.centred", "snapshot.column_sums"), "needs snapshot.column_sums, which has the rows' mean")
    if score.k is not None and score.basis == "newest" and score.k > settings.sketch.ell:
        yield Problem(("score.k", "sketch.ell"), f"must be at most sketch.ell, which is {settings.sketch.ell}")
    if score.when.p_max is not None and score.when.p_max < P_MIN:
        yield Problem(("score.when",), f"has a p_max that no row can reach: p-values are at least {P_MIN:g}")
    if score.group is not None and score.group == settings.kafka.get("group.id"):
        yield Problem(("score.group", "kafka.group.id"), "must be another group than kafka.group.id, the workers' own")


def _limits(settings: Settings) -> Iterator[Problem]:
    message_max = _number(settings, "message.max.bytes", _MESSAGE_MAX_BYTES)
    if settings.snapshot.inline_max_bytes > message_max:
        yield Problem(
            ("snapshot.inline_max_bytes", "kafka.message.max.bytes"),
            f"must be at most kafka.message.max.bytes, which is {message_max:.0f}",
        )
    poll_s = _number(settings, "max.poll.interval.ms", _MAX_POLL_INTERVAL_MS) / 1000
    if settings.checkpoint.revoke_budget_s >= poll_s:
        yield Problem(
            ("checkpoint.revoke_budget_s", "kafka.max.poll.interval.ms"),
            f"must be below kafka.max.poll.interval.ms, which is {poll_s:g} s",
        )
    if settings.sketch.buffer_max_bytes > settings.worker.memory_max_bytes:
        yield Problem(
            ("sketch.buffer_max_bytes", "worker.memory_max_bytes"),
            "must be at most worker.memory_max_bytes, which is " + size_text(settings.worker.memory_max_bytes),
        )


def _number(settings: Settings, name: str, default: float) -> float:
    """A librdkafka property as a number. If it is not a number, librdkafka has reported that already."""
    try:
        return float(settings.kafka.get(name, default))
    except ValueError:
        return default
