"""The fields and sentences of a worker's status: the most urgent condition is the one in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfd_stream.errors import FencedError, StoreRefusedError, StoreUnavailableError
from sfd_stream.observe.facts import LoopState, ReleasedError, failure_kind, in_words, moment_of, preview, written_bytes
from sfd_stream.observe.status import PartitionStatus
from tests.support.watched import Stage, manifest


def test_a_preview_is_printable_and_short() -> None:
    assert preview(b"\x1b[31mred\n") == "\\x1b[31mred\\x0a"
    assert preview(b"a" * 100) == "a" * 48 + "…"


def test_the_most_urgent_condition_is_the_one_in_words() -> None:
    parts = [PartitionStatus(0, "reading", lag=7, checkpoint_age_s=60.0), PartitionStatus(1, "claiming")]
    calm = LoopState(joined=True, stopping=False, sketch_idle=True, broker_away_s=None, memory_reserved_bytes=0)
    assert in_words(parts[:1], calm, 0.0) == "idle: up to date"
    assert in_words(parts[:1], calm, 0.0, every_s=5.0).startswith("checkpoints are late: a row has waited for 60 s")
    assert in_words(parts, calm, 0.0, every_s=5.0) == "restoring partition 1"
    alone = calm._replace(outside_group_s=75.0)
    assert in_words(parts, alone, 0.0) == "stuck: outside the consumer group for 75 s"
    unreachable = alone._replace(broker_away_s=12.0)
    assert in_words(parts, unreachable, 0.0) == "waiting for the broker: no answer for 12 s"
    assert in_words(parts, unreachable._replace(stopping=True), 0.0) == "stopping: last checkpoints"


def test_a_moment_has_the_worst_of_all_partitions() -> None:
    status = replace(
        Stage(partitions=0).watch.status,
        partitions=(
            PartitionStatus(0, "reading", lag=5, delta_ratio=0.01, checkpoint_age_s=3.0, drift=0.2),
            PartitionStatus(1, "reading", lag=7, delta_ratio=0.03, checkpoint_age_s=1.0),
        ),
    )
    found = moment_of(status)
    assert (found.lag, found.delta_ratio, found.checkpoint_age_s, found.drift) == (12, 0.03, 3.0, 0.2)


def test_only_blobs_of_the_manifest_itself_were_written_for_it() -> None:
    assert written_bytes(manifest(5, size=1_000)) == 1_000, "its segment of 77 bytes is of the manifest before"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (StoreUnavailableError("no route"), "unavailable"),
        (StoreRefusedError("no right"), "refused"),
        (FencedError("another owner"), "fenced"),
        (ReleasedError(), "abandoned"),
        (ZeroDivisionError(), "other"),
    ],
)
def test_failures_are_counted_by_what_to_do_about_them(error: Exception, kind: str) -> None:
    assert failure_kind(error) == kind
