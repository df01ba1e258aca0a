"""Delivery of a round: the scores of some batches, the states after them, and their offsets.

    transactional   all of it in one transaction, under the group's membership: the broker refuses it to a scorer that
                    has lost a partition
    at least once   scores acknowledged ──► states acknowledged ──► offsets committed. If it stops in between, the next
                    owner scores the same records again. States have the rows they count: no row counts twice.

A round is repeated until it is delivered or its partitions are released; it is never skipped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from sfd_stream.errors import BrokerRefusedError
from sfd_stream.kafka.producer import TOO_LARGE, Sink, Ticket
from sfd_stream.kafka.source import Source
from sfd_stream.kafka.transactional_producer import NotCommittedError, Offset, Outgoing, TransactionalSink
from sfd_stream.loop.jobs import Job, Wait, answer, reached
from sfd_stream.loop.questions import Questions
from sfd_stream.loop.runtime import Runtime
from sfd_stream.observe.logs import Log
from sfd_stream.score.partitions import ScoredPartition
from sfd_stream.wire.score_states import ScoreState, encode, key_of

PAUSE_S, PAUSE_MAX_S = 0.1, 5.0
"""Between attempts at a transaction: each pause is twice as long as the one before, up to the maximum."""

WITH_STATE = "sfd-score-state"
"""An offset's metadata: the state topic has a state of this offset or a later one."""


@dataclass(frozen=True, eq=False)
class Share:
    """One partition's share of a round."""

    owned: ScoredPartition
    next_offset: int
    messages: Sequence[Outgoing]
    state: ScoreState


@dataclass(eq=False)
class AtLeastOnce:
    """The loop's thread drives its jobs."""

    runtime: Runtime
    source: Source
    log: Log
    group: str
    topic: str
    """The input topic."""
    state_topic: str
    sink: Sink | None
    failed: Callable[[], None] = lambda: None
    """Called for each attempt that failed."""

    def deliver(self, shares: Sequence[Share]) -> Job[None]:
        """1. Every score is acknowledged. 2. Every state is acknowledged. 3. The offsets are committed."""
        shares = _ours(shares)
        yield from reached(self.runtime, "before-publish")
        yield from self._acknowledged([message for share in shares for message in share.messages])
        yield from reached(self.runtime, "after-publish")
        yield from self._acknowledged([self._state_message(share) for share in shares])
        yield from reached(self.runtime, "before-commit")
        yield from self.commit({share.owned: share.next_offset for share in shares}, WITH_STATE)
        yield from reached(self.runtime, "after-commit")

    def commit(self, offsets: Mapping[ScoredPartition, int], metadata: str = "") -> Job[None]:
        """Waits until the broker has acknowledged the offset of each partition that is still ours.

        One that was lost and given back is not awaited: the source has forgotten the commit, and the new claim chooses
        where to read from.
        """
        self.source.commit({owned.number: to for owned, to in offsets.items() if not owned.is_released}, metadata)
        while any(self._is_awaited(owned, to) for owned, to in offsets.items()):
            yield Wait("offset commit")

    def _is_awaited(self, owned: ScoredPartition, offset: int) -> bool:
        number, source = owned.number, self.source
        return not owned.is_released and number in source.assigned and source.last_committed.get(number) != offset

    def serve(self) -> None:
        """Called once a turn: processes delivery reports."""
        if self.sink is not None:
            self.sink.poll(0.0)

    def close(self) -> None:
        """Nothing to close."""

    def _state_message(self, share: Share) -> Outgoing:
        return Outgoing(self.state_topic, key_of(self.group, self.topic, share.owned.number), encode(share.state))

    def _acknowledged(self, messages: Sequence[Outgoing]) -> Job[None]:
        """Waits until each message is acknowledged. One that failed is sent again."""
        assert self.sink is not None
        waiting, sent = deque(messages), deque[tuple[Outgoing, Ticket]]()
        while waiting or sent:
            while waiting:
                message = waiting[0]
                ticket = self.sink.publish(*message)
                if ticket is None:
                    break  # the queue is full
                sent.append((waiting.popleft(), ticket))
            yield Wait("delivery reports")
            while sent and sent[0][1].done:
                message, ticket = sent.popleft()
                if ticket.error == TOO_LARGE:
                    raise _too_large(message)
                if not ticket.delivered:
                    self.failed()
                    self.log.warning("score not delivered, will retry", reason=ticket.error)
                    waiting.append(message)


@dataclass(eq=False, kw_only=True)
class InTransactions(AtLeastOnce):
    """One transaction at a time, on a thread of its own."""

    questions: Questions
    transactions: TransactionalSink

    def deliver(self, shares: Sequence[Share]) -> Job[None]:
        """Offsets, scores and states in one transaction, repeated until it is committed.

        The membership is taken while all partitions of the transaction are ours: another owner of one of them is in a
        later generation of the group, in which the broker refuses this membership.
        """
        for attempt in count():
            shares = _ours(shares)
            if not shares:
                return
            membership = self.source.membership()
            if membership is not None and (yield from self._try(shares, membership)):
                return
            shares = yield from self._undelivered(shares)
            yield Wait("next transaction", for_s=min(PAUSE_S * 2**attempt, PAUSE_MAX_S))

    def _try(self, shares: Sequence[Share], membership: bytes) -> Job[bool]:
        yield from reached(self.runtime, "before-publish")
        offsets = [Offset(self.topic, share.owned.number, share.next_offset, WITH_STATE) for share in shares]
        messages = [message for share in shares for message in share.messages]
        messages += [self._state_message(share) for share in shares]
        sending = self.runtime.transactions.submit(self.transactions.commit, offsets, membership, messages)
        try:
            yield from answer("transaction", sending)
        except NotCommittedError as error:
            if error.reason == TOO_LARGE:
                raise _too_large(max(messages, key=lambda message: len(message.value))) from None
            self.failed()
            self.log.warning("transaction failed, will retry", reason=error.reason)
            return False
        for share in shares:
            self.source.note_commit(share.owned.number, share.next_offset)
        yield from reached(self.runtime, "after-publish")
        return True

    def _undelivered(self, shares: Sequence[Share]) -> Job[Sequence[Share]]:
        """The shares whose offset is not committed, asked once no transaction on them is open: a transaction that
        failed may have been committed.
        """
        numbers = [share.owned.number for share in _ours(shares)]
        found = yield from self.questions.patiently(
            "committed offsets", lambda timeout_s: self.source.committed(numbers, timeout_s)
        )
        behind = []
        for share in _ours(shares):
            committed = found.get(share.owned.number)
            if committed is None or committed.offset < share.next_offset:
                behind.append(share)
        return behind

    def close(self) -> None:
        self.transactions.close()


def _ours(shares: Sequence[Share]) -> list[Share]:
    return [share for share in shares if not share.owned.is_released]


def _too_large(message: Outgoing) -> BrokerRefusedError:
    return BrokerRefusedError(
        f"a message of {len(message.value):,} bytes is larger than topic {message.topic} takes: raise"
        " kafka.message.max.bytes and the topic's max.message.bytes"
    )
