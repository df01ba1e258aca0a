"""Deliberate faults in the real code. Each must be caught; `seeds` says within how many.

An edit names a file and the text to replace, which must occur exactly once. Where the package changes, the edit changes
with it: a test applies all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.simulation.aims import AIMS
from tests.simulation.loader import Edit
from tests.simulation.run import Result, simulate
from tests.simulation.scenario import Scenario, draw


@dataclass(frozen=True)
class Mutation:
    edits: tuple[Edit, ...]
    seeds: int
    aim: str | None = None
    """Where faults are aimed: a name of `aims.AIMS`."""
    harmless: bool = False
    """Whether docs/reliability.md shows that it breaks no law by itself."""

    def scenario(self, seed: int) -> Scenario:
        return AIMS[self.aim](draw(seed)) if self.aim else draw(seed)


def one(file: str, old: str, new: str, seeds: int = 300, *, aim: str | None = None, harmless: bool = False) -> Mutation:
    return Mutation((Edit(file, old, new),), seeds, aim, harmless)


_CREATE = """    while (yield CreateIfAbsent(key, data)) is not Answer.DONE:
        found = yield from get(key)
        if found == data:  # whole bytes, the nonce among them [G]
            break
        if found is not Answer.MISSING:
            return Fenced(manifest.number)
    if (yield from numbers_after(prefix, manifest.number)):
        return Fenced(manifest.number)
    return Created(manifest)
"""
_WRITE = "        manifest = yield from owned.chain.write(frozen, binding, snapshot)\n"

MUTATIONS: dict[str, Mutation] = {
    "commit before manifest": one(
        "worker/worker.py", _WRITE, "        self.source.commit({owned.number: frozen.next_offset})\n" + _WRITE
    ),
    "publish before durable": Mutation(
        (
            Edit(
                "worker/worker.py",
                _WRITE,
                "        if snapshot is not None and self.sink is not None:\n"
                "            from sfd_stream.wire.snapshots import message_of\n"
                "            self.sink.publish(self.delivery.encoder.topic, *message_of(snapshot))\n" + _WRITE,
            ),
        ),
        300,
    ),
    "no nonce check": one(
        "state/protocol.py",
        "        if found == data:  # whole bytes, the nonce among them [G]",
        "        if found is not Answer.MISSING and decode_manifest(found).next_offset == manifest.next_offset:",
        aim="claims",
    ),
    "'exists' taken as mine": one(
        "state/protocol.py",
        _CREATE,
        _CREATE.replace("is not Answer.DONE:", "not in (Answer.DONE, Answer.EXISTS):"),
        aim="claims",
    ),
    "unknown create taken as done": one(
        "state/protocol.py",
        _CREATE,
        _CREATE.replace("is not Answer.DONE:", "not in (Answer.DONE, Answer.UNKNOWN):"),
    ),
    "no LIST after create": one(
        "state/protocol.py",
        _CREATE,
        _CREATE.replace("if (yield from numbers_after(prefix, manifest.number)):", "if False:"),
        300,
        aim="slots",
    ),
    "claim without epoch + 1": one(
        "state/claim.py", "epoch=next_epoch(manifest.epoch, output_epoch),", "epoch=manifest.epoch,"
    ),
    "forgotten fence": one(
        "worker/checkpoint_chain.py",
        '            raise FencedError(f"another owner continued from checkpoint {outcome.number} of {self.where}")',
        "            return Created(self.newest)",
        300,
        aim="claims",
    ),
    "fenced owner stays in the group": one(
        "worker/worker.py", "            self.source.rejoin()", "            pass", 300, aim="wakes"
    ),
    "fenced owner stays in the group, which loses nothing by itself": Mutation(
        (
            Edit("worker/worker.py", "            self.source.rejoin()", "            pass"),
            Edit(
                "kafka/assignment.py", "if self._incremental and self.is_same_member else", "if self._incremental else"
            ),
        ),
        300,
        aim="stalls",
    ),
    "next offset one too far": one("kafka/records.py", "return self.offset + 1", "return self.offset + 2"),
    "next offset one too near": one("kafka/records.py", "return self.offset + 1", "return self.offset"),
    "reading begins one too far": one(
        "kafka/assignment.py",
        "            return TopicPartition(self._topic, partition, start.offset)",
        "            return TopicPartition(self._topic, partition, start.offset + 1)",
    ),
    "dead letters not awaited": one(
        "worker/worker.py",
        "        yield from self.intake.acknowledged(owned.number, frozen.next_offset)\n",
        "",
        aim="letters",
    ),
    "failed dead letter forgotten": one(
        "kafka/dead_letters.py",
        "        if ticket is not None and ticket.delivered:",
        "        if ticket is not None and ticket.done:",
        400,
        aim="letters",
    ),
    "retention removes a referenced blob": one(
        "state/retention.py",
        "for manifest in kept.tops for blob in manifest.references}",
        "for manifest in kept.tops for blob in manifest.references[:1]}",
    ),
    "buffer missing in a checkpoint": one(
        "state/partition.py",
        "        buffer=(*kept, *segment),",
        "        buffer=kept,",
    ),
    "freeze while sketching": one(
        "worker/sketch_thread.py",
        "        return self._runtime.sketch.submit(lambda: owned.live.whole.freeze())",
        "        found: Future[Frozen] = Future()\n        found.set_result(owned.live.whole.freeze())\n"
        "        return found",
        400,
        aim="pauses",
    ),
    "sketch on two threads": one("loop/runtime.py", 'DaemonExecutor(1, "sketch")', 'DaemonExecutor(2, "sketch")'),
    "random state shared between partitions": one(
        "cli/build.py",
        "seed=(sketch.seed, partition),",
        "seed=(sketch.seed, 0),",
    ),
    "negative offset believed": Mutation(
        (
            Edit("kafka/admin.py", "        if offset < 0:", "        if False:"),
            Edit("kafka/admin.py", "request_timeout=timeout_s + REQUEST_S, iso", "request_timeout=0.5, iso"),
            Edit("state/manifest.py", "    if manifest.next_offset < 0:", "    if False:"),
            Edit("state/steps.py", "            if offset < 0:", "            if False:"),
        ),
        300,
        aim="starts",
    ),
    "end offset from a failed answer": Mutation(
        (
            Edit("kafka/admin.py", "request_timeout=timeout_s + REQUEST_S, iso", "request_timeout=0.5, iso"),
            Edit(
                "kafka/admin.py",
                """            raise NoAnswerError(f"offset {offset} of {where.topic}/{where.partition} is no offset")
""",
                "            offset = 0\n",
            ),
        ),
        400,
        aim="starts",
    ),
    "a lost partition writes": one(
        "worker/worker.py",
        """        self.watch.rebalanced("lost", numbers)
        self._release(*self._ours(numbers))
""",
        """        self.watch.rebalanced("lost", numbers)
""",
        300,
        aim="stalls",
    ),
    "until end judged by commits alone": one(
        "worker/until_end.py",
        "        published = not self.publishes or is_published(committed.metadata)",
        "        published = True",
    ),
    "a pause that survives an assignment": one(
        "kafka/assignment.py",
        "        if others := starts.keys() - unread:",
        "        if others := set():",
        aim="pauses",
    ),
    "what is still held is assigned again": one(
        "kafka/assignment.py",
        "        self._lose_unreported(partitions)\n",
        "",
        aim="pauses",
    ),
    "commits overtake each other": one(
        "kafka/commits.py",
        "for partition, what in due.items() if not self.is_sent(partition)}",
        "for partition, what in due.items()}",
        400,
        aim="commits",
    ),
    "republication puts the next snapshot off": one(
        "worker/worker.py",
        "                taken.republished_at_s = now_s",
        "                taken.republished_at_s = taken.unpublished.begun_at_s = now_s",
    ),
    "unpublished state not published by the next owner": one(
        "worker/worker.py",
        "        yield from self.delivery.deliver(owned, unpublished)\n",
        "",
        400,
    ),
    "unknown transaction taken for failed": one(
        "worker/transactional.py",
        "                owned.settled = error.certain\n",
        "                owned.settled = True\n",
        400,
        aim="transactions",
    ),
    "zombie's transaction not refused": one(
        "worker/transactional.py",
        "            membership = self.source.membership()\n"
        "            if membership is None:\n"
        "                return False\n"
        "            yield from owned.chain.check_owner()\n",
        "            yield from owned.chain.check_owner()\n"
        "            membership = self.source.membership()\n"
        "            if membership is None:\n"
        "                return False\n",
        30,
        aim="stalls",
        harmless=True,
    ),
    "a cancelled transaction is not awaited": one(
        "worker/transactional.py",
        "        if (last := self.transactions.last(owned.number)) is not None:\n",
        "        if False:\n",
        300,
        aim="claims",
    ),
    "a membership used for what an earlier one held": Mutation(
        (
            Edit(
                "kafka/source.py",
                "        return self._membership_of(self._assignment.member)",
                "        return self._membership_of(self.member_id())",
            ),
            Edit(
                "kafka/assignment.py", "if self._incremental and self.is_same_member else", "if self._incremental else"
            ),
        ),
        300,
        aim="memberships",
    ),
    "epoch below the output topic's": one(
        "state/claim.py",
        "    epoch = next_epoch(0, (yield AskOutputEpoch()))  # [P]",
        "    epoch = 1",
        aim="backups",
    ),
    "epoch of a claim below the output topic's": one(
        "state/claim.py",
        "epoch=next_epoch(manifest.epoch, output_epoch),",
        "epoch=manifest.epoch + 1,",
        aim="backups",
    ),
    "producer kept after a retried commit": one(
        "kafka/transactional_producer.py",
        "        if repeated or self._has_disconnected(producer):\n            self._producer = None\n",
        "",
        aim="transactions",
    ),
    "a claim never retried": one(
        "loop/jobs.py",
        "            delay_s = outage.failed(",
        '            if wait.what == "CreateIfAbsent":\n                raise\n            delay_s = outage.failed(',
    ),
    "a revoke publishes after its callback": Mutation(
        (
            Edit(
                "worker/worker.py",
                "        for owned in leaving:\n            self.jobs.cancel(owned)\n",
                "        for owned in leaving:\n",
            ),
        ),
        300,
        aim="stalls",
    ),
    "a job advanced after release": one(
        "loop/jobs.py",
        "        running = self._running.pop(key, None)\n",
        "        running = None\n",
        300,
        aim="stalls",
    ),
    "unpublished state published by nobody": Mutation(
        (
            Edit(
                "worker/worker.py",
                "        yield from self.delivery.deliver(owned, unpublished)\n",
                "",
            ),
            Edit(
                "state/policy.py",
                "        if has_pending and elapsed_s",
                "        if False and elapsed_s",
            ),
        ),
        400,
    ),
    "a pause is never lifted": one(
        "kafka/assignment.py",
        "        if self.paused - wanted:",
        "        if False:",
        aim="pauses",
    ),
    "a failed commit not retried": one(
        "kafka/commits.py",
        "                self.waiting[tp.partition] = self._wanted[tp.partition]\n",
        "",
        400,
        aim="commits",
    ),
    "a snapshot encoded from a moving state": one(
        "worker/worker.py",
        "sketch_of(frozen, self.plan.shape(owned.number))",
        "owned.live.state.sketch()",
        400,
    ),
    "merge counts a part twice": one(
        "merge.py",
        "        parts = [snapshot for reader in self.inputs for snapshot in _held(reader)]",
        "        parts = [snapshot for reader in self.inputs for snapshot in [*_held(reader), *_held(reader)[:1]]]",
        aim="mergers",
    ),
    "a merger keeps its epoch": one(
        "merge.py",
        "self._epoch = 1 if newest is None else newest.epoch + 1",
        "self._epoch = 1",
        aim="mergers",
    ),
    "a merge that was not delivered is forgotten": one(
        "merge.py",
        "self._changed = not self._publish(self._newest)",
        "self._changed = bool(self._publish(self._newest)) and False",
        aim="mergers",
    ),
    "a dead letter that timed out counts as refused": one(
        "kafka/dead_letters.py",
        "        elif ticket is not None and ticket.timed_out:",
        "        elif False:",
        aim="outages",
    ),
    "an output topic that is not answered is read once": one(
        "loop/questions.py",
        "repeated(self.runtime, self.give_up_s if needed else 0.0, asking)",
        "repeated(self.runtime, 0.0, asking)",
        aim="outages",
    ),
    "a reader keeps a client without records": Mutation(
        (
            Edit("kafka/topic_reader.py", "        if stuck:", "        if False:"),
            Edit(
                "kafka/topic_reader.py",
                "                self._replace_client()\n                raise",
                "                raise",
            ),
        ),
        300,
        aim="readers",
    ),
    "leader epochs lost at an eager assignment": one(
        "kafka/assignment.py",
        "Start(offset, self.leader_epochs[p])",
        "Start(offset)",
        aim="logs",
    ),
    "a recreated topic goes unnoticed": one(
        "state/protocol.py",
        "    if _differ(stored.topic_id, wanted.topic_id):",
        "    if False:",
        aim="logs",
    ),
    "until end without commits": one(
        "worker/until_end.py",
        "        committed = self.source.last_committed.get(owned.number, -1)",
        "        committed = self.ends.get(owned.number, 0)",
        400,
        aim="commits",
    ),
}


def until_caught(mutation: Mutation, source: Path, first: int, seeds: int) -> Result | None:
    """The first seed that breaks a law with the mutation and none without it, or None."""
    for seed in range(first, first + seeds):
        result = simulate(mutation.scenario(seed), source, mutation.edits)
        if result.violation is not None and simulate(mutation.scenario(seed), source).violation is None:
            return result
    return None
