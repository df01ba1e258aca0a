"""`sfd-stream score`: what it needs is asked for first; of each partition it continues with the newest state."""

from __future__ import annotations

from typing import Any

import pytest

from sfd_stream.cli import main
from sfd_stream.cli.commands.score import read_states
from sfd_stream.kafka import topic_reader
from sfd_stream.kafka.records import Record
from sfd_stream.wire.score_states import ScoreState, encode, key_of
from tests.support.watched import settings_of


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--json"], "--json needs --until-end"),
        (["--until-end"], "score.topic is required"),
    ],
)
def test_what_is_missing_is_asked_for(flags: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["kafka.bootstrap.servers=b:1", "kafka.group.id=g", "input.topic=rows", "sketch.d=100"]
    given += ["checkpoint.url=memory://"]
    assert main(["score", *flags, *(word for setting in given for word in ("--set", setting))]) == 2
    assert words in capsys.readouterr().err


def states_on(monkeypatch: pytest.MonkeyPatch, *records: Record) -> dict[int, Any]:
    """What is read from a state topic with these records."""

    class Tail:
        def __init__(self, *_: Any, **__: Any) -> None:
            self.closed = False

        def catch_up(self, _: float) -> list[list[Record]]:
            return [[record] for record in records]

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(topic_reader, "Tail", Tail)
    return read_states(settings_of("score.topic=scores"), 1.0)


def record(partition: int, value: bytes | None, group: str = "group-score") -> Record:
    return Record(0, 0, value, key=key_of(group, "rows", partition))


def test_the_newest_state_of_each_partition_of_the_group_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    older, newer, other = (ScoreState(offset, "newest") for offset in (10, 20, 99))
    found = states_on(
        monkeypatch,
        record(0, encode(older)),
        record(1, encode(older)),
        record(0, encode(newer)),
        record(1, None),
        record(0, encode(other), group="others-score"),
    )
    assert found == {0: newer}


def test_a_state_that_cannot_be_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert states_on(monkeypatch, record(0, b"rubbish"), record(1, encode(ScoreState(5, "")))).keys() == {1}
