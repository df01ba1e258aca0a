"""What a worker asks its broker: nothing that can abort the process, and nothing on the loop's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from sfd_stream.cli.build import worker_of
from sfd_stream.errors import SfdError
from tests.support.kafka import Broker
from tests.support.slow import smoke_first
from tests.system.conftest import MakeRun
from tests.system.fakes import FakeSource, rows, worker_on
from tests.system.runs import Companion, Rows, assert_counts, wait_until
from tests.system.shown import output_topic

TO_THE_COORDINATOR = (
    "list_consumer_group_offsets", "alter_consumer_group_offsets", "describe_consumer_groups",
    "delete_consumer_groups",
)  # fmt: skip
"""Admin requests that librdkafka sends to a group's coordinator. One that fails while the broker goes away can abort
the process (librdkafka's issue 4605 and pull request 5397)."""


@pytest.fixture
def to_the_coordinator(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of such requests that were made."""
    made: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(AdminClient, name)

        def call(*args: Any, **named: Any) -> Any:
            made.append(name)
            return real(*args, **named)

        return call

    for name in TO_THE_COORDINATOR:
        monkeypatch.setattr(AdminClient, name, counted(name))
    return made


@pytest.mark.parametrize("delivery", smoke_first(["transactional", "none", "idempotent"]))
def test_a_worker_sends_no_admin_request_to_a_coordinator(
    kafka: Broker, make_run: MakeRun, to_the_coordinator: list[str], delivery: str
) -> None:
    topic, all_rows = kafka.create_topic(partitions=2), Rows.random(2_000, partitions=2)
    all_rows.produce(kafka, topic)
    shows = {} if delivery == "none" else {"snapshot": {"topic": output_topic(), "delivery": delivery}}
    run = make_run(kafka, topic, changes=shows)
    worker, source = worker_of(run.settings(), until_end=False)
    first = Companion(worker, source)
    first.until(lambda: all(run.durable_offset(p) == 50 for p in range(2)), "all rows")
    first.until(lambda: [part.end for part in worker.watch.status.partitions] == [50, 50], "the status")
    second = run.begin(until_end=True)
    assert second.end() is None
    first.stop()
    assert to_the_coordinator == []
    for partition, matrix in enumerate(all_rows.matrices):
        assert_counts(run.state(partition), matrix)


class Noting(FakeSource):
    """Notes the threads that ask."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.asked_by: dict[str, set[threading.Thread]] = {}
        self.times_s: set[float] = set()

    def _note(self, question: str, timeout_s: float) -> None:
        self.asked_by.setdefault(question, set()).add(threading.current_thread())
        self.times_s.add(timeout_s)

    def watermarks(self, partition: int, timeout_s: float) -> tuple[int, int]:
        self._note("watermarks", timeout_s)
        return super().watermarks(partition, timeout_s)

    def committed(self, partitions: Any, timeout_s: float) -> Any:
        self._note("committed", timeout_s)
        return super().committed(partitions, timeout_s)


def test_a_claim_asks_the_broker_on_another_thread_than_the_loops() -> None:
    worker, source, _ = worker_on({0: rows(10), 1: rows(10)}, source_class=Noting)
    assert isinstance(source, Noting)
    worker.run()
    assert set(source.asked_by) == {"watermarks", "committed"}
    assert all(threading.current_thread() not in threads for threads in source.asked_by.values())
    assert min(source.times_s) >= 3.0, "a loaded broker may need seconds"


def test_what_others_have_committed_is_asked_on_another_thread_than_the_loops() -> None:
    """Partition 1 is another's, which commits its end only while this worker waits for it."""
    worker, source, _ = worker_on({0: rows(10), 1: rows(10)}, source_class=Noting)
    assert isinstance(source, Noting)
    source.events = [lambda: source._assign([0])]
    polls_before: list[int] = []

    def slow(partitions: Any, timeout_s: float) -> Any:
        source._note("committed", timeout_s)
        if 1 not in partitions:
            return FakeSource.committed(source, partitions, timeout_s)
        if not polls_before:
            polls_before.append(source.polls)
            wait_until(lambda: source.polls >= polls_before[0] + 5, "that the loop goes on meanwhile", 10)
            raise TimeoutError("a loaded broker")
        source.committed_offsets[1] = 10
        return FakeSource.committed(source, partitions, timeout_s)

    source.committed = slow  # type: ignore[method-assign]
    worker.run()
    assert threading.current_thread() not in source.asked_by["committed"]
    assert polls_before


def test_a_refusal_of_that_question_ends_the_worker() -> None:
    worker, source, _ = worker_on({0: rows(10), 1: rows(10)})
    source.events = [lambda: source._assign([0])]
    answer = source.committed

    def refused(partitions: Any, timeout_s: float) -> Any:
        if 1 in partitions:
            raise SfdError("no right to the consumer group")
        return answer(partitions, timeout_s)

    source.committed = refused  # type: ignore[method-assign]
    with pytest.raises(SfdError, match="no right"):
        worker.run()
