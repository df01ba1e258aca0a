"""The scorer's rights and its state topic; without score.topic there is nothing to check."""

from __future__ import annotations

from confluent_kafka.admin import AclOperation

from sfd_stream.doctor.check import Verdict
from sfd_stream.doctor.scores import rights, state
from tests.unit.doctor.patients import patient, topic

SCORES = ("score.topic=scores", "score.state_topic=states", "snapshot.topic=sketches")


def test_without_a_topic_of_scores_nothing_is_checked() -> None:
    assert rights(patient()).verdict is Verdict.SKIPPED
    assert state(patient()).verdict is Verdict.SKIPPED


def test_a_missing_right_is_named_with_its_topic() -> None:
    unreadable = topic("states", allowed=frozenset({AclOperation.WRITE}))
    found = rights(patient(topic("scores"), unreadable, overrides=SCORES))
    assert (found.verdict, found.reason) == (Verdict.FAILED, "no READ on topic states")


def test_states_are_kept_by_compaction() -> None:
    assert state(patient(topic("states", cleanup_policy="compact"), overrides=SCORES)).verdict is Verdict.GOOD
    assert state(patient(topic("states", cleanup_policy="delete"), overrides=SCORES)).verdict is Verdict.WARNING
