"""The output topic is read once for all partitions that came together, and again for those that come later."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import pytest

from sfd_stream import SnapshotReader
from sfd_stream.cli import build
from sfd_stream.errors import BrokerRefusedError, BrokerUnavailableError
from sfd_stream.loop.jobs import Jobs
from sfd_stream.loop.questions import OutputEpochs
from sfd_stream.loop.runtime import Runtime
from sfd_stream.reader.merged import MergedSketch
from tests.support.kafka import Broker
from tests.support.watched import Clock
from tests.system.conftest import MakeRun
from tests.system.runs import Rows, Run
from tests.system.shown import output_topic
from tests.unit.reader.made import (
    CLEANED_SOON,
    holds,
    message,
    publish_quickly,
    records_in,
    rows_of,
    sketch_of,
    snapshot,
)
from tests.unit.worker.chains import driven

GIVE_UP_S = 90.0


def test_it_is_read_once_for_an_assignment_and_again_for_the_next() -> None:
    clock, readings = Clock(10.0), [{0: 3, 1: 4}, {0: 5}]
    runtime, found = Runtime(None, clock=clock), dict[int, int | None]()  # type: ignore[arg-type]
    epochs, jobs = OutputEpochs(lambda: readings.pop(0), runtime, Lines(), GIVE_UP_S), Jobs[int](runtime)

    def claim(partition: int) -> Any:
        found[partition] = yield from epochs.of(partition, 10.0)

    for partition in (0, 1, 2):
        jobs.start(partition, "claim", claim(partition))
    while jobs:
        assert all(finished.error is None for finished in jobs.advance())
    assert found == {0: 3, 1: 4, 2: None}
    clock.now = 20.0
    assert driven(epochs.of(0, 15.0), runtime) == 5
    assert readings == []


def test_a_first_claim_reads_again_until_the_broker_answers_and_reports_why_it_waits() -> None:
    """A broker that is unavailable for 30 s ended the worker (campaign, seed 12 with --fencing)."""
    clock, outcomes = Clock(10.0), [BrokerUnavailableError("away"), TimeoutError("still away"), {0: 7, 1: 8}]
    read = partial(read_after, clock, 30.0, outcomes)
    runtime = Runtime(None, clock=clock, io=Inline())  # type: ignore[arg-type]
    epochs = OutputEpochs(read, runtime, Lines(), GIVE_UP_S)
    claim = epochs.of(0, 10.0)
    waits = [next(claim)]
    for error in (BrokerUnavailableError, TimeoutError):
        failed = waits[-1].answer
        assert failed is not None
        with pytest.raises(error) as raised:
            failed.result()
        waits.append(claim.throw(raised.value))
    assert [(wait.what, wait.since_s, wait.failure) for wait in waits] == [
        ("output topic", 10.0, ""),
        ("output topic", 10.0, "away"),
        ("output topic", 10.0, "still away"),
    ]
    with pytest.raises(StopIteration) as stop:
        claim.send(waits[-1].answer.result())  # type: ignore[union-attr]
    assert stop.value.value == 7
    assert driven(epochs.of(1, 10.0), runtime) == 8  # the same reading
    assert outcomes == []


def test_a_first_claim_ends_when_the_output_topic_cannot_be_read_for_give_up_s() -> None:
    clock, outcomes = Clock(0.0), [BrokerUnavailableError("away") for _ in range(9)]
    runtime = Runtime(None, clock=clock, io=Inline())  # type: ignore[arg-type]
    epochs = OutputEpochs(partial(read_after, clock, 30.0, outcomes), runtime, Lines(), GIVE_UP_S)
    with pytest.raises(BrokerRefusedError, match=f"away, and not for {GIVE_UP_S:g} s"):
        driven(epochs.of(0, 0.0), runtime)
    assert clock.now == GIVE_UP_S


def test_a_refusal_ends_a_first_claim_at_once() -> None:
    clock, outcomes = Clock(), [BrokerRefusedError("no right to read it"), {0: 7}]
    runtime = Runtime(None, clock=clock, io=Inline())  # type: ignore[arg-type]
    epochs = OutputEpochs(partial(read_after, clock, 0.0, outcomes), runtime, Lines(), GIVE_UP_S)
    with pytest.raises(BrokerRefusedError, match="no right"):
        driven(epochs.of(0, 0.0), runtime)
    assert driven(epochs.of(0, 0.0), runtime) == 7  # the next assignment asks again


def read_after(clock: Clock, seconds: float, outcomes: list[Any]) -> dict[int, int]:
    clock.now += seconds
    outcome = outcomes.pop(0)
    if isinstance(outcome, Exception):
        raise outcome
    found: dict[int, int] = outcome
    return found


class Inline(Executor):
    """Runs what is submitted at once."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args, **named))
        except Exception as error:  # noqa: BLE001 - as an executor does
            future.set_exception(error)
        return future


def test_a_claim_goes_on_without_an_answer_and_asks_once_an_assignment() -> None:
    clock, readings, log = Clock(10.0), [], Lines()

    def read() -> dict[int, int]:
        readings.append(clock.now)
        raise BrokerRefusedError("no right to read it")

    runtime = Runtime(None, clock=clock)  # type: ignore[arg-type]
    epochs = OutputEpochs(read, runtime, log, GIVE_UP_S)
    found = [driven(epochs.of(partition, 10.0, needed=False), runtime) for partition in range(100)]
    assert found == [None] * 100
    assert readings == [10.0]
    (line,) = log.lines
    assert "output topic could not be read" in line["event"]
    assert "no right to read it" in line["reason"]
    clock.now = 20.0
    assert driven(epochs.of(0, 20.0, needed=False), runtime) is None  # the next assignment asks again
    assert readings == [10.0, 20.0]
    with pytest.raises(BrokerRefusedError):
        driven(epochs.of(0, 20.0), runtime)  # a state that begins needs it


class Lines:
    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []

    def warning(self, event: str, **context: object) -> None:
        self.lines.append({"event": event, **context})

    info = debug = warning

    def bind(self, **_: object) -> Self:
        return self


@pytest.mark.parametrize("delivery", ["idempotent", "transactional"])
def test_readers_follow_a_store_that_was_put_back_to_a_backup(
    kafka: Broker, make_run: MakeRun, tmp_path: Path, delivery: str
) -> None:
    """A backup of the first worker's state is put back after three more owners have published."""
    rows, topic, shows = Rows.random(400, partitions=2), kafka.create_topic(partitions=2), output_topic()
    run = make_run(kafka, topic, changes={"snapshot": {"topic": shows, "delivery": delivery}})
    folder, backup = Path(unquote(urlsplit(run.url).path)), tmp_path / "backup"
    for turn in range(4):
        for partition in range(2):
            kafka.produce(topic, rows.messages(partition)[turn * 2 : (turn + 1) * 2], partition=partition)
        run.inside()
        if turn == 0:
            shutil.copytree(folder, backup)
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    with SnapshotReader(kafka.bootstrap, shows, log_level=0) as live:
        before = {part.id.partition: part.id.epoch for part in live.merged().parts}
        for partition in range(2):
            kafka.produce(topic, rows.messages(partition)[8:], partition=partition)
        run.inside()
        for merged in (live.merged(), read_cold(kafka, shows)):
            assert {part.id.partition: part.id.epoch for part in merged.parts} == {p: e + 1 for p, e in before.items()}
            assert holds(rows.matrices, merged.sketch)


@pytest.mark.slow
def test_a_run_of_64_partitions_over_a_long_past_is_read_cold_as_one_sketch_within_its_bound(
    kafka: Broker, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 10,000 past snapshots of the same group, by a state that was lost. They are small: a message is what costs.

    The worker reads them once, for all its partitions, and goes on above them.
    """
    rows, topic, shows = Rows.random(64 * 40, partitions=64), kafka.create_topic(partitions=64), output_topic()
    rows.produce(kafka, topic)
    run = make_run(kafka, topic, changes={"snapshot": {"topic": shows}})
    kafka.create_topic(partitions=4, config=CLEANED_SOON, name=shows)
    publish_past(kafka, run, 10_000)
    read, times = build.output_epochs, []
    monkeypatch.setattr(build, "output_epochs", lambda settings: times.append(1) or read(settings))
    run.inside()
    assert times == [1]
    merged = read_cold(kafka, shows)
    assert merged.complete
    assert {part.id.partition: part.id.epoch for part in merged.parts} == dict.fromkeys(range(64), 2)
    assert holds(rows.matrices, merged.sketch)
    kafka._wait_for(lambda: records_in(kafka, shows) < 1000, "compaction")
    assert read_cold(kafka, shows).sketch == merged.sketch


def publish_past(kafka: Broker, run: Run, count: int) -> None:
    """As the run's group would have, number by number; `count` of them, or a few more."""
    small, numbers = sketch_of(rows_of(0, n=2, d=2), 2), range(1, count // 64 + 2)
    ids = {"cluster": kafka.admin.list_topics(timeout=10).cluster_id, "group": run.group, "topic": run.topic}
    past = (snapshot(small, p, partitions=64, number=number, **ids) for number in numbers for p in range(64))
    publish_quickly(kafka, run.settings().snapshot.topic or "", map(message, past))


def read_cold(kafka: Broker, topic: str) -> MergedSketch:
    with SnapshotReader(kafka.bootstrap, topic, log_level=0) as reader:
        return reader.merged()
