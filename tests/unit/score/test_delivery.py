"""Delivery of a round: until it has happened, once, and only for partitions that are still ours."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest

from sfd_stream.errors import BrokerRefusedError
from sfd_stream.kafka.commits import Committed
from sfd_stream.kafka.producer import TOO_LARGE, Ticket
from sfd_stream.kafka.transactional_producer import NotCommittedError, Offset, Outgoing
from sfd_stream.loop.questions import Questions
from sfd_stream.loop.runtime import Runtime
from sfd_stream.score.delivery import AtLeastOnce, InTransactions, Share
from sfd_stream.score.partitions import ScoredPartition
from sfd_stream.wire.columns import FixedColumns
from sfd_stream.wire.score_states import ScoreState, decode
from tests.system.fakes import Diary, plan_of
from tests.unit.worker.chains import driven

REFUSED = NotCommittedError("ILLEGAL_GENERATION", certain=True)
UNKNOWN = NotCommittedError("_TIMED_OUT", certain=False)


class FakeGroup:
    """A group's coordinator, and what it was asked to commit."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self.memberships: list[bytes | None] = []
        self.last_committed: dict[int, int] = {}
        self.assigned = frozenset({0, 1})
        self.failing = 0
        self.log: list[Any] = []

    def membership(self) -> bytes | None:
        return self.memberships.pop(0) if self.memberships else b"member"

    def committed(self, partitions: Collection[int], _: float) -> dict[int, Committed | None]:
        found = {p: self.offsets.get(p) for p in partitions}
        return {p: None if offset is None else Committed(offset, "", None) for p, offset in found.items()}

    def note_commit(self, partition: int, offset: int) -> None:
        self.last_committed[partition] = offset

    def commit(self, offsets: Mapping[int, int], metadata: str = "") -> None:
        self.log.append(("commit", dict(offsets), metadata))
        self.failing -= 1
        if self.failing < 0:
            self.last_committed |= {p: offsets[p] for p in offsets.keys() & self.assigned}


class FakeTransactions:
    """Answers in turn; None commits. `on_attempt` is called at each."""

    def __init__(self, group: FakeGroup, *answers: Exception | None, happened: bool = False) -> None:
        self.group = group
        self.answers = list(answers)
        self.happened = happened
        """Whether a transaction with an unknown result has happened."""
        self.tried: list[list[Offset]] = []
        self.taken: list[list[Outgoing]] = []
        self.on_attempt: Any = lambda: None

    def commit(self, offsets: list[Offset], _: bytes, messages: list[Outgoing]) -> None:
        self.tried.append(offsets)
        self.on_attempt()
        answer = self.answers.pop(0) if self.answers else None
        if answer is None or (answer is UNKNOWN and self.happened):
            self.taken.append(messages)
            self.group.offsets |= {offset.partition: offset.offset for offset in offsets}
        if answer is not None:
            raise answer


class FakeSink:
    """Acknowledges at the next poll, or fails as told."""

    def __init__(self, log: list[Any], *errors: str) -> None:
        self.log, self.errors, self.open = log, list(errors), list[Ticket]()

    def publish(
        self, topic: str, key: bytes | None, value: bytes, _: Iterable[Any] = (), timestamp_ms: int | None = None
    ) -> Ticket:
        del timestamp_ms
        self.log.append((topic, key, value))
        self.open.append(Ticket())
        return self.open[-1]

    def poll(self, _: float) -> int:
        for ticket in self.open:
            if self.errors:
                ticket.error = self.errors.pop(0)
            else:
                ticket.partition, ticket.offset = 0, 0
        self.open.clear()
        return 0


def owned_of(partition: int) -> ScoredPartition:
    return ScoredPartition(partition, FixedColumns(3), Diary())


def share(partition: int, next_offset: int = 10) -> Share:
    owned = owned_of(partition)
    messages = [Outgoing("scores", b"k", b"p%d r%d" % (partition, row)) for row in range(2)]
    return Share(owned, next_offset, messages, ScoreState(next_offset, "newest"))


def parts_of(group: Any, sink: Any = None) -> dict[str, Any]:
    runtime = Runtime(None)  # type: ignore[arg-type]
    return {
        "runtime": runtime,
        "source": group,
        "log": Diary(),
        "group": "g",
        "topic": "rows",
        "state_topic": "states",
        "sink": sink,
    }


def transactional(group: Any, transactions: Any) -> InTransactions:
    parts = parts_of(group)
    questions = Questions(plan_of(give_up_s=1.0), parts["runtime"], group, None)
    return InTransactions(**parts, questions=questions, transactions=transactions)


def test_scores_states_and_offsets_are_in_one_transaction() -> None:
    group = FakeGroup()
    transactions = FakeTransactions(group)
    delivery = transactional(group, transactions)
    driven(delivery.deliver([share(0), share(1, 20)]), delivery.runtime)
    assert [[offset[:3] for offset in tried] for tried in transactions.tried] == [[("rows", 0, 10), ("rows", 1, 20)]]
    (messages,) = transactions.taken
    assert [message.value for message in messages[:4]] == [b"p0 r0", b"p0 r1", b"p1 r0", b"p1 r1"]
    assert [(message.topic, message.key) for message in messages[4:]] == [
        ("states", b"g/rows/0"),
        ("states", b"g/rows/1"),
    ]
    assert [decode(message.value).next_offset for message in messages[4:]] == [10, 20]
    assert group.last_committed == {0: 10, 1: 20}


@pytest.mark.parametrize("failure", [REFUSED, UNKNOWN])
def test_what_has_not_happened_is_repeated_until_it_has(failure: NotCommittedError) -> None:
    group = FakeGroup()
    transactions = FakeTransactions(group, failure, failure)
    delivery = transactional(group, transactions)
    driven(delivery.deliver([share(0)]), delivery.runtime)
    assert len(transactions.tried) == 3
    assert len(transactions.taken) == 1


def test_a_transaction_with_an_unknown_result_that_has_happened_is_not_repeated() -> None:
    group = FakeGroup()
    transactions = FakeTransactions(group, UNKNOWN, happened=True)
    delivery = transactional(group, transactions)
    driven(delivery.deliver([share(0)]), delivery.runtime)
    assert len(transactions.tried) == len(transactions.taken) == 1


def test_a_partition_that_was_released_between_attempts_is_left_out() -> None:
    group, gone, stays = FakeGroup(), share(0), share(1)
    transactions = FakeTransactions(group, REFUSED)
    transactions.on_attempt = gone.owned.release
    delivery = transactional(group, transactions)
    driven(delivery.deliver([gone, stays]), delivery.runtime)
    assert [[offset.partition for offset in tried] for tried in transactions.tried] == [[0, 1], [1]]
    transactions.on_attempt = stays.owned.release
    transactions.answers = [REFUSED]
    driven(delivery.deliver([gone, stays]), delivery.runtime)
    assert len(transactions.tried) == 3, "nothing is left to deliver"


def test_nothing_is_sent_without_a_membership() -> None:
    group = FakeGroup()
    group.memberships = [None, None, b"member"]
    transactions = FakeTransactions(group)
    delivery = transactional(group, transactions)
    driven(delivery.deliver([share(0)]), delivery.runtime)
    assert len(transactions.tried) == 1


def test_a_message_that_is_too_large_ends_the_scorer_with_advice() -> None:
    group = FakeGroup()
    delivery = transactional(group, FakeTransactions(group, NotCommittedError(TOO_LARGE, certain=True)))
    with pytest.raises(BrokerRefusedError, match=r"max\.message\.bytes"):
        driven(delivery.deliver([share(0)]), delivery.runtime)


def at_least_once(group: FakeGroup, *errors: str) -> AtLeastOnce:
    parts = parts_of(group, FakeSink(group.log, *errors))
    delivery = AtLeastOnce(**parts)
    runtime_wait = delivery.runtime.wait

    def serve_and_wait(seconds: float) -> None:
        delivery.serve()
        runtime_wait(seconds)

    object.__setattr__(delivery.runtime, "wait", serve_and_wait)
    return delivery


def test_at_least_once_scores_come_before_states_and_states_before_offsets() -> None:
    group = FakeGroup()
    delivery = at_least_once(group)
    driven(delivery.deliver([share(0), share(1)]), delivery.runtime)
    kinds = [entry[0] for entry in group.log]
    assert kinds == ["scores"] * 4 + ["states"] * 2 + ["commit"]
    assert group.log[-1] == ("commit", {0: 10, 1: 10}, "sfd-score-state")


def test_at_least_once_a_score_that_failed_is_sent_again_before_anything_else() -> None:
    group = FakeGroup()
    delivery = at_least_once(group, "_MSG_TIMED_OUT")
    driven(delivery.deliver([share(0)]), delivery.runtime)
    assert [entry[2] for entry in group.log[:3]] == [b"p0 r0", b"p0 r1", b"p0 r0"]
    assert [entry[0] for entry in group.log[3:]] == ["states", "commit"]


def test_a_commit_is_awaited_until_it_is_acknowledged() -> None:
    group = FakeGroup()
    group.failing = 1
    delivery = at_least_once(group)
    job = delivery.commit({owned_of(0): 7, owned_of(1): 8})
    for _ in range(3):
        assert next(job).what == "offset commit"
    group.last_committed |= {0: 7, 1: 8}
    assert list(job) == []


def test_a_partition_that_is_not_ours_any_more_is_not_committed() -> None:
    group = FakeGroup()
    group.assigned = frozenset({1})
    delivery = at_least_once(group)
    driven(delivery.commit({owned_of(0): 7, owned_of(1): 8}), delivery.runtime)
    assert group.last_committed == {1: 8}


def test_an_offset_of_an_earlier_assignment_is_not_committed() -> None:
    group, earlier = FakeGroup(), owned_of(0)
    earlier.release()
    delivery = at_least_once(group)
    driven(delivery.commit({earlier: 7, owned_of(1): 8}), delivery.runtime)
    assert group.last_committed == {1: 8}


def test_a_round_ends_if_its_partition_is_lost_and_given_back_before_the_commit_is_acknowledged() -> None:
    group, lost = FakeGroup(), share(0)
    group.failing = 1
    delivery = at_least_once(group)
    job = delivery.deliver([lost])
    while ("commit", {0: 10}, "sfd-score-state") not in group.log:
        next(job)
        delivery.serve()
    lost.owned.release()  # partition 0 is still assigned: as a new object
    assert next(job, None) is None
