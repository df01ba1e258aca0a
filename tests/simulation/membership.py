"""A consumer's part in its group: joining, heartbeats, and which rebalance callback comes next.

As in librdkafka, one rebalance callback is outstanding at a time. It is put on the consumer's queue and served by its
next poll; what happens meanwhile waits. `assignment` is what the group gave, which is not what the application reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.groups import OK, REBALANCING, ConsumerGroup, Group, Member
from tests.simulation.network import Connection

NO_GENERATION = -1


class Membership:
    """`consumer` serves the queue. `silent` draws whether a loss is never reported (librdkafka's pull request 5604).

    In KIP-848 a client keeps its id for life, and reports each loss before it joins again.
    """

    def __init__(self, consumer: Any, group: Group, connection: Connection, silent: Callable[[], bool]) -> None:
        self.member_id: str | None = None
        """None while it is no member."""
        self._kept_id: str | None = None
        """In KIP-848."""
        self.generation = NO_GENERATION
        self.assignment: frozenset[int] = frozenset()
        self.topic: str | None = None
        self.subscribed = False
        self._consumer = consumer
        self._group = group
        self._connection = connection
        self._silent = silent
        self._busy = False
        self._next: list[Callable[[], None]] = []
        """What waits for the outstanding callback to be served."""
        self._attempt = 0
        self._joining = False
        self._assigned_in = NO_GENERATION
        self._is_lost = False
        self._beat = 0
        self.on_assign: Callable[..., None]
        self.on_revoke: Callable[..., None]
        self.on_lost: Callable[..., None]

    # Called by the application

    def subscribe(self, topic: str, on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        self.topic, self.on_assign, self.on_revoke, self.on_lost = topic, on_assign, on_revoke, on_lost
        self.subscribed = True
        self._when_free(self._join)

    def unsubscribe(self) -> None:
        self.subscribed = False
        self._attempt += 1
        self._joining = False
        self._when_free(self._give_up)

    @property
    def id(self) -> str:
        """As the application is told it."""
        return self.member_id or self._kept_id or ""

    @property
    def _keeps_id(self) -> bool:
        return isinstance(self._group, ConsumerGroup)

    @property
    def idle(self) -> bool:
        return not self._busy and self.member_id is None

    # Joining

    def _join(self) -> None:
        if not self.subscribed or self._joining:
            return
        if self.assignment and not self._group.cooperative:
            self._call("revoke", self.assignment, then=self._join)
            return
        self._joining = True
        self._attempt += 1
        attempt, member_id, consumer = self._attempt, self.member_id or self._kept_id, self._consumer
        assert self.topic is not None
        member = Member(
            member_id or "",
            consumer.who,
            consumer.session_s,
            consumer.max_poll_s,
            self.topic,
            self.assignment,
            self._assigned_in,
        )

        def answered(answer: Any) -> None:
            status, given_id, generation, given = answer
            if attempt != self._attempt:
                if status == OK and given_id != self.member_id and not self._keeps_id:
                    self._send(lambda reply: reply(self._group.leave(given_id)))
            elif status == OK:
                self._joining = False
                self.member_id, self.generation = given_id, generation
                self._kept_id = given_id if self._keeps_id else None
                self._start_heartbeats()
                self._take(given)
            else:
                self._joining = False
                self.lose()

        self._send(lambda reply: self._group.join(member_id, member, reply), answered)

    def _take(self, given: frozenset[int]) -> None:
        before, self.assignment, self._assigned_in = self.assignment, given, self.generation
        revoked, added = before - given, given - before
        if isinstance(self._group, ConsumerGroup):  # no callback without a partition; the next heartbeat goes on
            if revoked:
                self.assignment = before - revoked
                self._call("revoke", revoked)
            elif added:
                self._call("assign", added)
            return
        if not revoked:
            self._call("assign", added)
        elif added:
            self._call("revoke", revoked, then=lambda: self._call("assign", added, then=self._join))
        else:
            self._call("revoke", revoked, then=self._join)

    # Losing and leaving

    def lose(self) -> None:
        """The group has given its partitions to others."""
        self._attempt += 1
        self._joining = False
        self.member_id, self.generation = None, NO_GENERATION
        lost, self.assignment = self.assignment, frozenset()
        if not lost or (not self._keeps_id and self._silent()):
            if lost:
                self._consumer.note(f"loses {sorted(lost)} without a callback")
            self._when_free(self._join)
            return
        self._is_lost = True
        self._when_free(lambda: self._call("lost", lost, then=self._join))

    def leave(self) -> None:
        """Leaves the group at once, as after max.poll.interval.ms."""
        if self.member_id is not None:
            member_id = self.member_id
            self._send(lambda reply: reply(self._group.leave(member_id)))
            self.member_id, self.generation = None, NO_GENERATION

    def _give_up(self) -> None:
        def then() -> None:
            if self._keeps_id or not self.subscribed:  # a classic client that subscribes again keeps its membership
                self.leave()
            self._when_free(self._join)

        given, self.assignment = self.assignment, frozenset()
        if given:
            self._call("revoke", given, then=then)
        else:
            then()

    # One callback at a time

    def _when_free(self, call: Callable[[], None]) -> None:
        if self._busy:
            self._next.append(call)
        else:
            call()

    def _call(self, kind: str, partitions: frozenset[int], then: Callable[[], None] | None = None) -> None:
        self._busy = True

        def serve() -> None:
            told = "lost" if kind == "revoke" and self._is_lost else kind
            callback = {"assign": self.on_assign, "revoke": self.on_revoke, "lost": self.on_lost}[told]
            self._consumer.note(f"{told} {sorted(partitions)}")
            self._consumer.rebalance(callback, sorted(partitions), assigns=told == "assign")
            self._busy = False
            if kind == "lost":
                self._is_lost = False
            if kind == "revoke" and not self._group.cooperative:
                self.assignment = frozenset()
            if then is not None:
                then()
            while self._next and not self._busy:
                self._next.pop(0)()

        self._consumer.enqueue(serve)

    # Heartbeats

    def _start_heartbeats(self) -> None:
        self._beat += 1
        beat = self._beat

        def send() -> None:
            if beat != self._beat or self.member_id is None:
                return
            member_id, generation, group = self.member_id, self.generation, self._group
            if isinstance(group, ConsumerGroup):
                owned = self.assignment
                if not self._busy:
                    self._send(lambda reply: reply(group.reconcile(member_id, owned)), reconciled)
                else:
                    self._send(lambda reply: reply(group.heard(member_id)), answered)
            else:
                self._send(lambda reply: reply(group.heartbeat(member_id, generation)), answered)
            self._consumer.later(self._consumer.heartbeat_s, send)

        def reconciled(answer: tuple[str, int, frozenset[int]]) -> None:
            status, epoch, allowed = answer
            if beat != self._beat or self.member_id is None or self._busy:
                return
            if status != OK:
                self.lose()
            else:
                self.generation = epoch
                self._take(allowed)

        def answered(status: str) -> None:
            if beat != self._beat or self.member_id is None or self._joining:
                return
            if status == REBALANCING:
                self._when_free(self._join)
            elif status != OK:
                self.lose()

        self._consumer.later(self._consumer.heartbeat_s, send)

    def _send(self, apply: Callable[[Any], None], answered: Callable[[Any], None] = lambda _: None) -> None:
        self._consumer.world.network.send(self._connection, apply, answered)
