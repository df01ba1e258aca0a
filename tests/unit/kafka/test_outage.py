"""A broker that does not answer is warned about: with the reason, soon, and not in a flood."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from sfd_stream.errors import BrokerRefusedError
from sfd_stream.kafka.admin import Admin
from sfd_stream.kafka.errors import Hooks
from sfd_stream.kafka.outage import EVERY_S, FIRST_S, Outage
from tests.support.slow import smoke_first
from tests.support.watched import Clock
from tests.system.runs import wait_until

NOWHERE = "no-such-host.invalid:9092"
MOST_LINES = 12
BROKER = ["--set", f"kafka.bootstrap.servers={NOWHERE}", "--set", "kafka.group.id=g"]


def run_settings(folder: Path) -> list[str]:
    given = ("input.topic=rows", "sketch.d=100", f"checkpoint.url={folder.as_uri()}", "http.port=0")
    return [*BROKER, *(part for setting in given for part in ("--set", setting))]


@pytest.mark.parametrize(
    "command",
    smoke_first(
        [
            "run",
            "read --topic sketches",
            "run --until-end --set snapshot.topic=sketches",
            "run --workers 2",
            "topics --partitions 1",
            "merge --set merge.topics=a --set merge.topic=b --set http.port=0",
            "merge --once --set merge.topics=a --set merge.topic=b",
            "watch --topic sketches",
            "plot picture.svg --topic sketches",
            "export sketch.npz --topic sketches",
            "produce --synthetic 10,5,2 --topic rows",
            "checkpoint reset rows/0 --to earliest",
            f"demo --broker {NOWHERE}",
        ],
        smoke=2,
    ),
)
def test_every_command_warns_with_the_reason_while_it_waits_for_a_broker(tmp_path: Path, command: str) -> None:
    arguments = command.split()
    if arguments[0] != "demo":
        arguments += run_settings(tmp_path) if arguments[0] in ("run", "topics", "checkpoint") else BROKER
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "sfd_stream.cli", *arguments], stderr=out, stdout=out, cwd=tmp_path
        )
    try:
        # A slow resolver: the first warning may come before the client knows the reason; the next one has it.
        wait_until(lambda: "Failed to resolve" in log.read_text() or process.poll() is not None, "a warning")
        told = log.read_text()
        assert process.poll() is None, f"it ended with {process.returncode} before it warned: {told}"
        assert "broker unavailable" in told
        assert NOWHERE in told
        assert told.count("FAIL") <= MOST_LINES, "the client's own lines are no flood"
    finally:
        process.terminate()
        process.wait(60)


def test_a_reader_with_a_bad_address_writes_one_line_and_raises() -> None:
    program = f"from sfd_stream import SnapshotReader; SnapshotReader({NOWHERE!r}, 'sketches', timeout_s=6).latest()"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    lines = ended.stderr.partition("Traceback")[0].splitlines()
    assert len(lines) == 1, ended.stderr
    assert "Failed to resolve" in ended.stderr  # in the line, or on a slow machine only in the error
    assert "BrokerUnavailableError" in ended.stderr


def test_a_warning_is_repeated_at_intervals_until_the_broker_answers(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage = Outage({"bootstrap.servers": "b:1"}, logging.getLogger("test"), clock)

    def warnings_in(seconds: float) -> int:
        caplog.clear()
        for _ in range(round(seconds / 0.5)):
            clock.now += 0.5
            outage.unanswered(clock.now - 0.5, "no answer")
        return len(caplog.records)

    assert warnings_in(FIRST_S - 0.5) == 0
    assert warnings_in(10) == 1
    assert warnings_in(3 * EVERY_S) == 3
    outage.answered()
    assert warnings_in(FIRST_S - 0.5) == 0
    assert warnings_in(10) == 1


def test_the_reason_is_kept_when_the_client_only_says_that_all_brokers_are_down() -> None:
    outage = Outage({"bootstrap.servers": "b:1"}, logging.getLogger("test"))
    outage.note(KafkaError(KafkaError._RESOLVE, "b:1 does not resolve"))
    outage.note(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert outage.words == "_RESOLVE: b:1 does not resolve"
    outage.note(KafkaError(KafkaError._SSL, "certificate expired"))
    assert outage.words == "_SSL: certificate expired"


def test_a_refusal_of_the_past_is_forgotten_once_a_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's reports wait until it is polled: one of an hour ago must not end who asks now."""
    admin, reports = Admin({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, Hooks()), [1]
    refused = KafkaError(KafkaError._AUTHENTICATION, "unknown user")
    monkeypatch.setattr(admin, "poll", lambda _: admin.outage.note(refused) if reports and reports.pop() else None)

    def no_answer(_: float) -> None:
        raise TimeoutError

    assert admin.ask(lambda _: "an answer", 0.1) == "an answer"
    with pytest.raises(TimeoutError):
        admin.ask(no_answer, 0.1)
    reports.append(1)
    with pytest.raises(BrokerRefusedError):
        admin.ask(no_answer, 0.1)
    assert admin.ask(lambda _: "an answer", 0.1) == "an answer"
    with pytest.raises(TimeoutError):
        admin.ask(no_answer, 0.1)
