"""What the doctor examines: each topic is described once, and checkpoints are read from the store."""

from __future__ import annotations

from typing import Any

import pytest

from sfd_stream.doctor.context import MetadataAnswer, Patient, Topic, newest_manifests
from sfd_stream.errors import StoreUnavailableError
from sfd_stream.state.manifest import encode_manifest, manifest_key
from tests.unit.doctor.patients import patient, topic
from tests.unit.state.chains import genesis


def test_a_topic_is_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def described(_: Patient, name: str) -> Topic | None:
        asked.append(name)
        return topic(name, partitions=3)

    one = patient()
    monkeypatch.setattr(Patient, "_described", described)
    one._topics.clear()
    assert one.partitions_known is None, "nobody is asked"
    assert one.topic("rows") is one.topic("rows")
    assert (asked, one.partitions_known) == (["rows"], 3)


def test_the_newest_checkpoints_are_read_and_an_unavailable_store_has_none() -> None:
    one = patient()
    one.store.put(manifest_key("g/rows/0", 1), encode_manifest(genesis()))
    assert newest_manifests(one) == {0: genesis()}

    class Unavailable:
        def list(self, *_: Any, **__: Any) -> list[str]:
            raise StoreUnavailableError("no route")

    one.store = Unavailable()  # type: ignore[assignment]
    assert newest_manifests(one) == {}


def test_errors_of_the_brokers_are_found_by_their_code() -> None:
    class Error:
        def code(self) -> int:
            return 7

    error: Any = Error()
    assert MetadataAnswer(None, (error,)).error(1, 7) is error
    assert MetadataAnswer(None, (error,)).error(1) is None
