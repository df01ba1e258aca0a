"""Each fault of a topic, made on a real broker, is found by the check that is there for it, and by no other."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from sfd_stream.cli.build import shape_of
from sfd_stream.config import Settings, load
from sfd_stream.doctor.check import Verdict
from sfd_stream.doctor.topics import compaction, exists, message_size, partitions
from sfd_stream.storage.open import open_store
from tests.support.kafka import free_ports
from tests.system.checkpoints.conftest import History, Site
from tests.unit.doctor.clinic import Clinic, Diagnosis
from tests.unit.doctor.patients import patient, topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.kafka import Broker
    from tests.support.seaweed import SeaweedServer


@pytest.fixture
def clinic(kafka: Broker, tmp_path: Path) -> Clinic:
    return Clinic(kafka, tmp_path)


SKETCHES = ("snapshot.topic=sketches",)


def test_a_topic_that_is_missing_fails() -> None:
    assert exists(patient(topic("rows"))).verdict is Verdict.GOOD
    assert exists(patient()).verdict is Verdict.FAILED


def test_a_write_needs_enough_replicas_in_sync() -> None:
    kept = {"min_insync_replicas": "2"}
    rows, good = topic("rows"), topic("sketches", replicas=2, **kept)
    assert partitions(patient(rows, good, overrides=SKETCHES)).verdict is Verdict.GOOD
    found = partitions(patient(rows, topic("sketches", replicas=1, **kept), overrides=SKETCHES))
    assert (found.verdict, "2 replicas in sync" in found.reason) == (Verdict.FAILED, True)


@pytest.mark.parametrize(("limit", "verdict"), [("4000000", Verdict.GOOD), ("1000", Verdict.WARNING)])
def test_a_snapshot_must_fit_into_a_message(limit: str, verdict: Verdict) -> None:
    assert message_size(patient(topic("sketches", max_message_bytes=limit), overrides=SKETCHES)).verdict is verdict


@pytest.mark.parametrize(("policy", "verdict"), [("compact,delete", Verdict.GOOD), ("delete", Verdict.WARNING)])
def test_snapshots_are_kept_by_compaction(policy: str, verdict: Verdict) -> None:
    assert compaction(patient(topic("sketches", cleanup_policy=policy), overrides=SKETCHES)).verdict is verdict


def traces(clinic: Clinic) -> dict[str, Any]:
    """All that one could leave behind."""
    admin = clinic.broker.admin
    names = [clinic.rows, clinic.dead, clinic.sketches]
    groups = admin.list_consumer_groups().result(30).valid
    ends = admin.list_offsets({TopicPartition(name, 0): OffsetSpec.latest() for name in names})
    return {
        "topics": clinic.sketches in admin.list_topics(timeout=10).topics,
        "ends": {where.topic: future.result(30).offset for where, future in ends.items()},
        "group": clinic.group in {group.group_id for group in groups},
        "folders": list(clinic.folder.iterdir()),
    }


@pytest.mark.parametrize("delivery", ["idempotent", "transactional"])
def test_all_is_good_and_nothing_is_left_behind(clinic: Clinic, delivery: str) -> None:
    clinic.broker.produce(clinic.rows, [b"x"])
    before = traces(clinic)
    found = clinic.examine(**{"snapshot.delivery": delivery})
    assert (found.exit_code, found.bad()) == (0, [])
    assert found.verdict("right to transactions") == ("good" if delivery == "transactional" else "skipped")
    assert traces(clinic) == before


def test_a_topic_of_snapshots_that_is_not_there_may_be_made_and_is_not(clinic: Clinic) -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    found = clinic.examine(**{"snapshot.topic": name})
    assert found.exit_code == 0
    assert f"{name} does not exist, and may be created" in found.words("right to write")
    assert name not in clinic.broker.admin.list_topics(timeout=10).topics


def test_a_name_that_does_not_resolve(clinic: Clinic) -> None:
    found = clinic.examine(**{"kafka.bootstrap.servers": "nobody.invalid:9092"})
    assert (found.exit_code, found.bad()) == (5, ["name resolution"])
    both = clinic.examine(**{"kafka.bootstrap.servers": f"nobody.invalid:9092,{clinic.broker.bootstrap}"})
    assert (both.exit_code, both.verdict("name resolution")) == (1, "warning")


def test_a_port_where_nobody_listens(clinic: Clinic) -> None:
    found = clinic.examine(**{"kafka.bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}"})
    assert (found.exit_code, found.bad()) == (5, ["connection"])


def test_the_built_in_broker_is_told_from_a_kafka(clinic: Clinic, built_in: Broker) -> None:
    found = clinic.examine(**{"kafka.bootstrap.servers": built_in.bootstrap})
    assert (found.exit_code, found.bad()) == (5, ["broker"])


@pytest.mark.parametrize("key", ["input.topic", "dead_letters.topic"])
def test_a_topic_that_is_not_there(clinic: Clinic, key: str) -> None:
    found = clinic.examine(**{key: "t-nobody-made-this"})
    assert (found.exit_code, found.bad()) == (5, ["topic"])
    assert "sfd-stream topics" in found.checks["topic"]["remedy"]


def test_too_few_replicas_in_sync_for_a_write(clinic: Clinic) -> None:
    clinic.sketches = clinic.broker.create_topic(config={"cleanup.policy": "compact", "min.insync.replicas": "2"})
    found = clinic.examine()
    assert (found.exit_code, found.bad()) == (5, ["partitions"])


def test_checkpoints_of_partitions_that_the_topic_does_not_have(clinic: Clinic) -> None:
    history_of(clinic, partition=7)
    found = clinic.examine()
    assert (found.exit_code, found.bad()) == (3, ["partitions"])


def test_a_snapshot_larger_than_the_topic_takes(clinic: Clinic) -> None:
    size = {"cleanup.policy": "compact", "max.message.bytes": "100000"}
    clinic.sketches = clinic.broker.create_topic(config=size)
    found = clinic.examine(**{"sketch.d": "5000"})
    assert (found.exit_code, found.bad()) == (1, ["message size"]), "a worker goes on without being seen"
    by_reference = clinic.examine(**{"sketch.d": "5000", "snapshot.inline_max_bytes": "1000"})
    assert by_reference.exit_code == 0
    names = clinic.examine(**{"input.columns": "hashed"})
    assert (names.exit_code, names.bad()) == (1, ["message size"]), "a small sketch, but names of any length"
    assert clinic.examine(**{"input.columns": "hashed", "snapshot.column_names": "false"}).exit_code == 0


def test_a_topic_of_snapshots_that_is_not_compacted(clinic: Clinic) -> None:
    clinic.sketches = clinic.broker.create_topic()
    found = clinic.examine()
    assert (found.exit_code, found.bad()) == (1, ["compaction"])


@pytest.mark.parametrize("config", [{"retention.ms": "60000"}, {"cleanup.policy": "compact"}], ids=str)
def test_a_topic_of_rows_that_forgets_them_too_soon(clinic: Clinic, config: dict[str, str]) -> None:
    clinic.rows = clinic.broker.create_topic(config=config)
    found = clinic.examine()
    assert (found.exit_code, found.bad()) == (1, ["retention"])


def test_rows_that_were_removed_before_they_were_read(clinic: Clinic) -> None:
    clinic.broker.produce(clinic.rows, [b"x"] * 20)
    history_of(clinic).checkpoint(5)
    assert clinic.examine().exit_code == 0
    clinic.broker.delete_records(clinic.rows, 0, 10)
    found = clinic.examine()
    assert (found.exit_code, found.bad()) == (3, ["retention"])
    assert f"offsets 5 to 9 of {clinic.rows}/0" in found.words("retention")


def test_workers_that_have_been_away_for_most_of_the_retention(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    at(-6 * 86_400, monkeypatch, lambda: history_of(clinic).checkpoint(5))
    clinic.broker.produce(clinic.rows, [b"x"] * 5)
    assert clinic.examine().exit_code == 0, "nothing is unread"
    clinic.broker.produce(clinic.rows, [b"x"])
    found = clinic.examine()
    assert (found.exit_code, found.bad()) == (1, ["retention"])
    assert "144.0 h old" in found.words("retention")


def test_a_record_from_the_future(clinic: Clinic) -> None:
    producer = Producer({"bootstrap.servers": clinic.broker.bootstrap})
    producer.produce(clinic.rows, b"x", partition=0, timestamp=int(1000 * (time.time() + 600)))
    assert producer.flush(30) == 0
    found = clinic.examine()
    assert (found.exit_code, found.bad()) == (1, ["clock"])


def test_a_checkpoint_from_the_future(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    at(600, monkeypatch, lambda: history_of(clinic).checkpoint(5))
    clinic.broker.produce(clinic.rows, [b"x"] * 10)
    found = clinic.examine()
    assert (found.exit_code, found.bad()) == (1, ["clock"])


@pytest.mark.real_s3
@pytest.mark.xdist_group("s3")
def test_a_clock_that_is_ahead_of_the_store_or_behind_it(
    clinic: Clinic, s3_server: SeaweedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {f"checkpoint.options.{key}": value for key, value in s3_server.options().items()}
    settings = {"checkpoint.url": s3_server.new_url(), **options}
    assert "agree" in clinic.examine(**settings).words("clock")
    for seconds, words in ((600, "600 s ahead of"), (-600, "600 s behind")):
        found: list[Diagnosis] = []
        at(seconds, monkeypatch, lambda found=found: found.append(clinic.examine(**settings)))  # type: ignore[misc]
        assert (found[0].exit_code, found[0].bad()) == (1, ["clock"])
        assert words in found[0].words("clock").replace("599", "600").replace("601", "600")
    assert open_store(settings["checkpoint.url"], s3_server.options()).list("") == []


def at(seconds: float, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """On a machine whose clock is this many seconds ahead."""
    real = time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: real() + seconds)
        act()


def history_of(clinic: Clinic, partition: int = 0) -> History:
    """A worker's checkpoints in the clinic's store."""
    site = Site(clinic.folder, topic=clinic.rows, group=clinic.group, store_url=clinic.store.as_uri())
    site.write()
    return History(site, partition).claim()


def test_partitions_that_a_worker_has_no_room_for_are_said(clinic: Clinic) -> None:
    """`run` would read the first partition and warn that the second waits, unread."""
    wide = {"sketch.d": "200000", "sketch.ell": "20", "sketch.buffer_max_bytes": "1MiB"}
    needed = shape_of(settings_of({**clinic.settings, **wide}), 0).memory_bytes()
    found = clinic.examine(**wide, **{"worker.memory_max_bytes": str(needed * 3 // 2)})
    assert found.bad() == ["partitions"]
    assert found.verdict("partitions") == "warning"
    assert "one worker has memory for 1 of 2 partitions; the others are not read until more workers run" in found.words(
        "partitions"
    )
    assert clinic.examine(**wide, **{"worker.memory_max_bytes": str(needed * 2)}).bad() == []


def settings_of(given: dict[str, str]) -> Settings:
    return load(None, environ={}, overrides=[f"{key}={value}" for key, value in given.items()]).settings


@pytest.mark.parametrize("delivery", ["transactional", "at-least-once"])
def test_the_topics_and_rights_of_a_scorer_are_checked(clinic: Clinic, delivery: str) -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    score = {"score.topic": name, "score.delivery": delivery}
    assert clinic.examine().verdict("right to score") == "skipped"
    found = clinic.examine(**score)
    assert (found.exit_code, found.bad(), found.verdict("right to score")) == (0, [], "good")
    assert name not in clinic.broker.admin.list_topics(timeout=10).topics, "nothing is left behind"
    clinic.broker.create_topic(name=f"{name}-state")
    found = clinic.examine(**score)
    assert (found.exit_code, found.bad()) == (1, ["score states"])
