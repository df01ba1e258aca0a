"""Bad messages: what the status says of them, and what it keeps to itself."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest

from sfd_stream.cli.build import watch_of
from sfd_stream.config.model import InputSettings
from sfd_stream.kafka.dead_letters import BadMessageGauge
from sfd_stream.loop.intake import Intake
from sfd_stream.observe.status import as_json
from sfd_stream.wire.columns import FixedColumns, HashedColumns
from tests.support.watched import AtOnce, Stage, settings_of
from tests.system.fakes import FakeBatch

SECRET = "patient-4711"
BAD = [
    SECRET.encode(),
    msgpack.packb({SECRET: 1.0}),
    msgpack.packb({"i": [1], SECRET: 2}),
    msgpack.packb({"i": SECRET}),
    b"\x81\xa1i\x91\xac" + SECRET[:-1].encode() + b"\xff",
    b"\x81\xac" + SECRET[:-1].encode() + b"\xff\x01",
    json.dumps({SECRET: 1}).encode(),
]


class Letters:
    def send(self, *_: Any) -> None:
        pass


def status_of(*, excerpts: bool) -> Any:
    stage = Stage(partitions=1)
    stage.watch.settings = settings_of(f"http.excerpts={excerpts}")
    gauge = BadMessageGauge(max_share=1.0, window=1000, max_consecutive=1000)
    intake = Intake(InputSettings(topic="rows"), gauge, stage.watch)
    intake.letters = Letters()  # type: ignore[assignment]
    for columns in (FixedColumns(5), HashedColumns(5)):
        intake.take(FakeBatch(0, 0, list(BAD)), columns)
    stage.tick()
    return json.loads(as_json(stage.watch.status, 0.0, 0))["workers"][0]


def test_the_status_holds_nothing_of_a_bad_message_unless_asked_for() -> None:
    status = status_of(excerpts=False)
    assert len(status["newest_dead_letters"]) == 2 * len(BAD)
    assert SECRET[:-1] not in json.dumps(status)
    assert all(letter["words"] and letter["preview"] == "" for letter in status["newest_dead_letters"])


def test_with_excerpts_the_status_shows_the_first_bytes() -> None:
    letters = status_of(excerpts=True)["newest_dead_letters"]
    assert all(SECRET[:-1] in letter["preview"] for letter in letters)
    assert any(f"unknown key '{SECRET}'" in letter["words"] for letter in letters)


@pytest.mark.parametrize(("given", "shown"), [([], False), (["http.excerpts=true"], True)])
def test_excerpts_are_a_setting_that_is_off(given: list[str], shown: bool) -> None:
    assert watch_of(settings_of(*given), "1", AtOnce().submit).excerpts is shown
