"""Questions to the broker, asked on background threads: cluster and topic ids, log ends, committed offsets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar

from sfd_stream.errors import BrokerRefusedError, BrokerUnavailableError, SfdError
from sfd_stream.kafka.errors import CHECK_IT
from sfd_stream.kafka.source import Source
from sfd_stream.loop.jobs import Job, Wait, answer
from sfd_stream.loop.runtime import Plan, Runtime
from sfd_stream.observe.logs import Log
from sfd_stream.state.manifest import Binding
from sfd_stream.state.perform import DISBELIEVED, delay_s
from sfd_stream.state.steps import AskCommitted, AskLog, AskOutputEpoch, LogFacts, Question

T = TypeVar("T")

QUESTION_S = 5.0
"""Time limit of one question: a loaded broker may need seconds. A question without an answer is repeated."""

UNREADABLE = "output topic could not be read before claiming: after a restore readers may keep older snapshots"
OVERDUE_S = 60.0
"""A call into the client that takes longer than this will not return (this happened once, in `list_topics`)."""


@dataclass(eq=False)
class OutputEpochs:
    """The highest epoch that the output topic has for each partition: an owner's epoch must be above it [P].

    To find it the whole topic is read, so partitions that were assigned together share one reading.
    """

    read: Callable[[], Mapping[int, int]]
    runtime: Runtime
    log: Log
    give_up_s: float
    _reading: Future[Mapping[int, int]] | None = None
    _read_s: float = 0.0
    _logged: Future[Mapping[int, int]] | None = None

    def of(self, partition: int, since_s: float, *, needed: bool = True) -> Job[int | None]:
        """The epoch as of some moment after `since_s`, the time of the assignment.

        If the topic can't be read and the answer is `needed`, reading is repeated for `give_up_s`. If it is not needed,
        the answer is None: the owner's own epoch is right unless the store was restored from a backup.
        """
        try:
            asking = partial(self._ask, since_s, needed)
            found: Mapping[int, int] = yield from repeated(self.runtime, self.give_up_s if needed else 0.0, asking)
        except SfdError as error:
            if needed:
                raise
            if self._logged is not self._reading:
                self._logged = self._reading
                self.log.warning(UNREADABLE, reason=str(error))
            return None
        return found.get(partition)

    def _ask(self, since_s: float, again: bool) -> Wait:
        last = self._reading
        if last is None or self._read_s < since_s or (again and last.done() and last.exception()):
            self._reading, self._read_s = self.runtime.io.submit(self.read), self.runtime.clock()
        return Wait("output topic", self._reading)


def repeated(runtime: Runtime, give_up_s: float, ask: Callable[[], Wait]) -> Job[Any]:
    """Repeats the question until there is an answer or `give_up_s` has passed."""
    since_s, failure = runtime.clock(), ""
    while True:
        try:
            return (yield replace(ask(), since_s=since_s, failure=failure))
        except (TimeoutError, BrokerUnavailableError) as error:
            failure = str(error)
            if runtime.clock() - since_s >= give_up_s:
                raise BrokerRefusedError(f"{error}, and not for {give_up_s:g} s; {CHECK_IT}") from None


@dataclass(eq=False)
class Questions:
    """Call `connect` before anything else."""

    plan: Plan
    runtime: Runtime
    source: Source
    output_epochs: OutputEpochs | None
    partitions: int = 0  # of the input topic, as last known
    _partitions_at_start: int = 0
    _cluster_id: str = ""

    def connect(self) -> Job[None]:
        self._cluster_id = yield from self.patiently("cluster id", self.source.cluster_id)
        self.partitions = yield from self.patiently("partition count", self.source.partition_count)
        self._partitions_at_start = self.partitions

    def patiently(self, what: str, question: Callable[[float], T]) -> Job[T]:
        """Repeats a question until it is answered or `give_up_s` has passed."""
        ask = lambda: Wait(what, self.runtime.io.submit(question, QUESTION_S), OVERDUE_S)  # noqa: E731
        return repeated(self.runtime, self.plan.checkpoint.give_up_s, ask)

    # For claims and checkpoints

    def binding(self, partition: int, asking: Future[str | None] | None = None) -> Job[Binding]:
        """The ids as of now. `asking`: a checkpoint's `topic_now`; without an answer in time the topic id is None."""
        topic_id = None
        if asking is None:
            topic_id = yield from self.patiently("topic id", self.source.topic_id)
        else:
            with contextlib.suppress(TimeoutError):
                topic_id = yield from answer("topic id", asking, for_s=OVERDUE_S)
        return Binding(self._cluster_id, topic_id, self.plan.group, self.plan.input.topic, partition)

    def start_of(self, partition: int) -> Literal["earliest", "latest"]:
        """A partition that was added after the start is read from its beginning, also if the setting is "latest"."""
        return self.plan.input.start if partition < self._partitions_at_start else "earliest"

    def answer(self, partition: int, since_s: float, question: Question) -> Job[Any]:
        """Answers a question of a claim's procedure. `since_s`: when the partition was assigned."""
        match question:
            case AskLog(again):
                if again:
                    yield Wait("AskLog", for_s=delay_s(DISBELIEVED, self.runtime.jitter()))
                ask = partial(self.source.watermarks, partition)
                return LogFacts(*(yield from self.patiently("AskLog", ask)))
            case AskCommitted():
                committed = yield from self.committed(partition)
                return None if committed is None else committed.offset
            case AskOutputEpoch(needed):
                epochs = self.output_epochs
                return None if epochs is None else (yield from epochs.of(partition, since_s, needed=needed))

    def committed(self, partition: int) -> Job[Any]:
        """A Committed or None. Waits while a transaction on the partition is open."""
        return (yield from self.patiently("AskCommitted", partial(self.source.committed, [partition])))[partition]

    def topic_now(self, count: bool) -> str | None:
        """On an io thread, while a state is frozen: the topic's id. `count`: asks for the number of partitions too."""
        if count:
            with contextlib.suppress(TimeoutError):  # then the last known number stays
                self.partitions = self.source.partition_count(QUESTION_S)
        return self.source.topic_id(QUESTION_S)
