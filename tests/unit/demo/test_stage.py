"""The parts of the demo: their settings are their own, and all that they created is removed."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sfd_stream.config import load
from sfd_stream.demo.stage import DemoSetup, DemoWorker, remove_checkpoints, remove_topics
from sfd_stream.storage.memory import MemoryStore

SETUP = DemoSetup("b:1", "rows", "sketches", "g", "file:///x", given=False)


def test_the_settings_of_the_demo_are_valid(tmp_path: Path) -> None:
    settings = load(SETUP.write_settings(tmp_path), environ={}, overrides=SETUP.overrides).settings
    assert (settings.group, settings.input.topic, settings.snapshot.topic) == ("g", "rows", "sketches")
    assert (settings.http.host, settings.http.port) == ("127.0.0.1", 0)


@pytest.mark.parametrize(
    ("setup", "kept"),
    [
        (SETUP, set()),
        (replace(SETUP, given=True), {"SFD_KAFKA__SASL_PASSWORD"}),
        (replace(SETUP, checkpoints="s3://bucket"), {"SFD_CHECKPOINT__OPTIONS__REGION"}),
    ],
)
def test_of_the_users_environment_only_the_credentials_that_are_needed_stay(
    setup: DemoSetup, kept: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SFD_KAFKA__SASL_PASSWORD", "SFD_CHECKPOINT__OPTIONS__REGION", "SFD_SKETCH__ELL", "HOME"):
        monkeypatch.setenv(name, "x")
    assert {name for name in setup.environ if name.startswith("SFD_")} == kept
    assert setup.environ["HOME"] == "x"


def test_the_page_and_the_last_words_of_a_worker_are_read_from_its_log(tmp_path: Path) -> None:
    process: Any = SimpleNamespace(poll=lambda: None)
    worker = DemoWorker(1, tmp_path / "worker-1.log", process)
    worker.log.write_text("not JSON\n")
    assert (worker.page(), worker.last_words(), worker.partitions()) == (None, "nothing", [])
    lines = ({"event": "joining"}, {"event": "status page available", "url": "http://h:1/"}, {"event": "stopping"})
    worker.log.write_text("\n".join(map(json.dumps, lines)))
    assert (worker.page(), worker.last_words()) == ("http://h:1/", "stopping")


def test_what_could_not_be_removed_is_named_with_its_reason() -> None:
    def ended(error: Exception | None) -> Future[None]:
        future = Future[None]()
        future.set_result(None) if error is None else future.set_exception(error)
        return future

    refused = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no right"))
    absent = KafkaException(KafkaError(KafkaError.GROUP_ID_NOT_FOUND))
    admin = SimpleNamespace(
        delete_topics=lambda _: {"rows": ended(None), "sketches": ended(refused)},
        delete_consumer_groups=lambda _: {"g": ended(absent)},
    )
    assert remove_topics(admin, SETUP) == ["topic sketches (no right)"]


def test_no_checkpoint_stays() -> None:
    store = MemoryStore("demo")
    for key in ("g/rows/0/a", "g/rows/1/b"):
        store.put(key, b"x")
    remove_checkpoints(store)
    assert store.list("") == []
