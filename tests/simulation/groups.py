"""The group coordinator: members, generations, sessions, offsets. Classic groups, cooperative or eager, and KIP-848.

A member that is not heard of for its session is expelled; one that does not join a rebalance in time too. Cooperative:
a partition that another member still owns is given to its new owner only after it was revoked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation.network import Reply
from tests.simulation.scheduler import Scheduler

OK, REBALANCING, UNKNOWN, ILLEGAL, LOADING = "ok", "rebalance", "unknown member", "illegal generation", "loading"

Place = tuple[str, int]


@dataclass
class CommittedOffset:
    offset: int
    metadata: str
    who: str


@dataclass
class Member:
    id: str
    who: str
    session_s: float
    rebalance_s: float
    topic: str
    owned: frozenset[int] = frozenset()
    owned_in: int = -1
    """The generation in which it was given what it owns."""
    heard_s: float = 0.0
    join: Reply | None = None
    """Its open request to join."""
    given: frozenset[int] = frozenset()


@dataclass
class Group:
    """One consumer group. All calls are the broker's, on the hub."""

    scheduler: Scheduler
    partitions: Callable[[str], int]
    on_commit: Callable[[str, int, int, str, str], None]
    """Called with topic, partition, offset, metadata and who, when an offset is committed."""
    cooperative: bool = True
    loading_until: float = 0.0
    """Until then the coordinator answers that it is still loading."""
    generation: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    offsets: dict[Place, CommittedOffset] = field(default_factory=dict)
    pending: dict[Place, Any] = field(default_factory=dict)
    """Offsets in open transactions, by place: the transaction."""
    _rebalancing: bool = False
    _round: int = 0
    _made: int = 0

    # Requests

    def join(self, member_id: str | None, member: Member, reply: Reply) -> None:
        """Answered with (OK, member id, generation, partitions) when the rebalance is complete."""
        now = self.scheduler.now
        if member_id is not None and member_id not in self.members:
            reply((UNKNOWN, None, 0, frozenset()))
            return
        if member_id is None:
            self._made += 1
            member_id = f"{member.who}-{self._made}"
            member = replace(member, id=member_id)  # a request that is sent again makes another member
            self.members[member_id] = member
            self._watch(member)
        known = self.members[member_id]
        known.join, known.heard_s = reply, now
        known.owned, known.owned_in, known.topic = member.owned, member.owned_in, member.topic
        self._prepare()
        self._complete_if_all_joined()

    def heartbeat(self, member_id: str, generation: int) -> str:
        member = self.members.get(member_id)
        if member is None:
            return UNKNOWN
        member.heard_s = self.scheduler.now
        if generation != self.generation:
            return ILLEGAL if member.join is None and not self._rebalancing else REBALANCING
        return REBALANCING if self._rebalancing else OK

    def leave(self, member_id: str) -> None:
        if member_id in self.members:
            self._remove(self.members[member_id])

    def check(self, member_id: str, generation: int) -> str:
        """Whether this member of this generation may commit."""
        if self.scheduler.now < self.loading_until:
            return LOADING
        if generation < 0 and not self.members:
            return OK  # taken for an administrator's
        if member_id not in self.members:
            return UNKNOWN
        return OK if generation == self.generation_of(member_id) else ILLEGAL

    def generation_of(self, member_id: str) -> int:
        del member_id
        return self.generation

    def commit(self, member_id: str, generation: int, offsets: list[tuple[Place, int, str]]) -> str:
        found = self.check(member_id, generation)
        if found == OK:
            member = self.members.get(member_id)
            if member is not None:
                member.heard_s = self.scheduler.now
            for place, offset, metadata in offsets:
                self.store(place, offset, metadata, "nobody" if member is None else member.who)
        return found

    def store(self, place: Place, offset: int, metadata: str, who: str) -> None:
        self.offsets[place] = CommittedOffset(offset, metadata, who)
        self.on_commit(*place, offset, metadata, who)

    def rebalance(self) -> None:
        """As when the topic has got more partitions."""
        if self.members:
            self._prepare()

    def expel(self, who: str) -> bool:
        """As if the sessions of its members had ended; says whether there was one."""
        found = [member for member in self.members.values() if member.who == who]
        for member in found:
            self._remove(member)
        return bool(found)

    # Rebalances

    def _watch(self, member: Member) -> None:
        def look() -> None:
            if self.members.get(member.id) is not member:
                return
            left_s = member.heard_s + member.session_s - self.scheduler.now
            if left_s <= 0 and member.join is None:
                self._remove(member)
            else:
                self.scheduler.call_later(max(left_s, 0.5), look)

        self.scheduler.call_later(member.session_s, look)

    def _remove(self, member: Member) -> None:
        del self.members[member.id]
        if member.join is not None:  # a join that waits is answered, so that the client joins again
            member.join((UNKNOWN, None, 0, frozenset()))
        if self.members:
            self._prepare()
            self._complete_if_all_joined()
        else:
            self._rebalancing = False
            self.generation += 1

    def _prepare(self) -> None:
        if self._rebalancing:
            return
        self._rebalancing = True
        self._round += 1
        this = self._round
        longest_s = max(member.rebalance_s for member in self.members.values())
        self.scheduler.call_later(longest_s, lambda: self._out_of_time(this))

    def _out_of_time(self, this: int) -> None:
        if self._rebalancing and self._round == this:
            for member in [each for each in self.members.values() if each.join is None]:
                del self.members[member.id]
            if self.members:
                self._complete_if_all_joined()
            else:
                self._rebalancing = False

    def _complete_if_all_joined(self) -> None:
        if not self._rebalancing or any(member.join is None for member in self.members.values()):
            return
        self._rebalancing = False
        self.generation += 1
        given = assigned(list(self.members.values()), self.partitions, cooperative=self.cooperative)
        for member in self.members.values():
            member.given, reply = given[member.id], member.join
            member.join, member.heard_s = None, self.scheduler.now
            assert reply is not None
            reply((OK, member.id, self.generation, member.given))


@dataclass
class ConsumerGroup(Group):
    """KIP-848: the broker reconciles. Each heartbeat says what the member owns and is answered with what it may own.

    A partition is given to its new owner once its old one reports that it gave it up. The number that is checked at
    commits is the member's own epoch, which moves on when it has what it was told to have.
    """

    epochs: dict[str, int] = field(default_factory=dict)

    def join(self, member_id: str | None, member: Member, reply: Reply) -> None:
        self._made += 1
        given = member_id or f"{member.who}-{self._made}"
        made = replace(member, id=given, owned=frozenset(), heard_s=self.scheduler.now)
        self.members[made.id] = made
        self._watch(made)
        self.generation += 1
        self.epochs[made.id] = self.generation
        reply((OK, made.id, self.generation, self._allowed(made)))

    def reconcile(self, member_id: str, owned: frozenset[int]) -> tuple[str, int, frozenset[int]]:
        member = self.members.get(member_id)
        if member is None:
            return UNKNOWN, 0, frozenset()
        member.heard_s = self.scheduler.now
        member.owned = owned
        allowed = self._allowed(member)
        if allowed == owned:
            self.epochs[member_id] = self.generation
        return OK, self.epochs[member_id], allowed

    def heard(self, member_id: str) -> str:
        """A heartbeat while a callback is outstanding."""
        if member_id not in self.members:
            return UNKNOWN
        self.members[member_id].heard_s = self.scheduler.now
        return OK

    def generation_of(self, member_id: str) -> int:
        return self.epochs[member_id]

    def rebalance(self) -> None:
        self.generation += 1

    def _remove(self, member: Member) -> None:
        del self.members[member.id]
        self.generation += 1

    def _allowed(self, member: Member) -> frozenset[int]:
        """Its share, without what another member still owns or was just given."""
        members = list(self.members.values())
        target = assigned(members, self.partitions, cooperative=False)[member.id]
        taken = {p for other in members if other is not member for p in other.owned | other.given}
        member.given = frozenset(target - taken)
        return member.given


def assigned(
    members: list[Member], partitions: Callable[[str], int], *, cooperative: bool
) -> dict[str, frozenset[int]]:
    """Who gets what: balanced, and as before where possible. Cooperative: not what another one still owns."""
    count = max((partitions(member.topic) for member in members), default=0)
    owner: dict[int, Member] = {}
    for member in members:
        for partition in member.owned:
            if partition not in owner or owner[partition].owned_in < member.owned_in:
                owner[partition] = member
    most = -(-count // len(members))
    target: dict[str, set[int]] = {member.id: set() for member in members}
    for partition, member in sorted(owner.items()):
        if partition < count and len(target[member.id]) < most:
            target[member.id].add(partition)
    taken = set().union(*target.values())
    for partition in range(count):
        if partition not in taken:
            least = min(members, key=lambda member: (len(target[member.id]), member.id))
            target[least.id].add(partition)
    if not cooperative:
        return {each: frozenset(found) for each, found in target.items()}
    held = {partition: member.id for partition, member in owner.items()}
    return {each: frozenset(p for p in found if held.get(p, each) == each) for each, found in target.items()}
