"""Taking a partition over, in the background, the questions to the broker included."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sfd_stream.errors import BrokerRefusedError, BrokerUnavailableError, SfdError
from sfd_stream.kafka.faults import CHECK_IT
from sfd_stream.kafka.source import Source
from sfd_stream.kafka.tail import Tail
from sfd_stream.reader.newest import Epochs
from sfd_stream.service.keeper import AbandonedError, Surroundings
from sfd_stream.service.tenure import Log, Plan, Tenure
from sfd_stream.state.manifest import Binding
from sfd_stream.state.partition import PartitionState, Shape
from sfd_stream.state.steps import AskCommitted, AskLog, AskOutputEpoch, LogFacts, Question

T = TypeVar("T")

QUESTION_S = 5.0
"""Time limit of one question to the broker: a loaded one may need seconds. A question without an answer is repeated."""

TOPIC_ID_S = 5.0

READ_S = 30.0
"""The output topic can't be read if nothing of it comes for this long."""


class OutputEpochs:
    """The highest epoch that the output topic has for each partition: an owner's must be above it [P].

    To know it of one partition the whole topic is read, so that all partitions that were assigned together share one
    reading, in the background. May be asked by any thread.
    """

    def __init__(
        self, read: Callable[[], Mapping[int, int]], clock: Callable[[], float], log: Log | None = None
    ) -> None:
        self._read = read
        self._clock = clock
        self._log = log
        self._lock = threading.Lock()
        self._known: tuple[float, Mapping[int, int]] | None = None
        self._failed_s: float | None = None

    def of(self, partition: int, since_s: float, *, needed: bool = True) -> int | None:
        """As of some moment after `since_s`, when the partition became ours.

        If the topic can't be read, that is raised where the answer is `needed`. Else it is logged once an assignment,
        and there is no answer: the owner's own epoch is right unless the store was put back to a backup.
        """
        with self._lock:
            if not needed and self._failed_s is not None and self._failed_s >= since_s:
                return None
            if self._known is None or self._known[0] < since_s:
                began_s = self._clock()
                try:
                    self._known = began_s, self._read()
                except (SfdError, TimeoutError) as error:
                    self._failed_s = began_s
                    if needed:
                        raise
                    self._say_unread(error)
                    return None
            return self._known[1].get(partition)

    def _say_unread(self, error: Exception) -> None:
        if self._log is not None:
            self._log.warning(
                "output topic could not be read before claiming: if the checkpoint store was restored from a backup,"
                " readers may keep older snapshots until the next restart",
                reason=str(error),
            )


def epochs_on(tail: Tail, group: str, topic: str, log: Log) -> dict[int, int]:
    """By partition of `topic`, read from `tail` to its end. An epoch that no owner can go above is logged."""
    epochs = Epochs(group, topic)
    for records in tail.catch_up(READ_S):
        for record in records:
            epochs.note(record.key, record.value, record.headers)
    for partition, epoch in epochs.forged.items():
        log.warning(
            "forged snapshot on the output topic hides the partition from readers: publish a null value under its key",
            output_topic=tail.topic,
            key=f"{group}/{topic}/{partition}",
            epoch=epoch,
        )
    return epochs.found


class Claims:
    """Made when the broker has told who it is. `partitions` is how many the topic had then."""

    def __init__(
        self,
        plan: Plan,
        around: Surroundings,
        source: Source,
        cluster_id: str,
        partitions: int,
        output_epochs: OutputEpochs | None,
    ) -> None:
        self._plan = plan
        self._around = around
        self._source = source
        self._cluster_id = cluster_id
        self._partitions = partitions
        self._output_epochs = output_epochs

    def claim(self, tenure: Tenure, shape: Shape) -> PartitionState:
        """The partition's newest state, ours from now on."""
        partition, keeper = tenure.partition, tenure.keeper

        def check(failure: Exception) -> None:
            tenure.step_failure = str(failure)
            if keeper.abandoned.is_set():
                raise AbandonedError(keeper.where)

        def answer(question: Question) -> Any:
            if isinstance(question, AskOutputEpoch):
                known = self._output_epochs
                return None if known is None else known.of(partition, tenure.assigned_s, needed=question.needed)

            return self._patiently(lambda timeout_s: self._answer(partition, question, timeout_s), check)

        keeper.on_step("topic id")
        binding = self._patiently(lambda timeout_s: self._binding(partition, timeout_s), check)
        # One that was added since: all that it holds came after us, so that also "latest" means all of it.
        start = self._plan.start if partition < self._partitions else "earliest"
        state = keeper.claim(binding, shape, start, answer)
        self._around.reach("after-claim")
        return state

    def binding_now(self, partition: int) -> Binding:
        """The topic's as of now, for a checkpoint. Its id, if it is not told in time, is not compared."""
        try:
            return self._binding(partition, TOPIC_ID_S)
        except TimeoutError:
            return Binding(self._cluster_id, None, self._plan.group, self._plan.topic, partition)

    def _binding(self, partition: int, timeout_s: float) -> Binding:
        topic_id = self._source.topic_id(timeout_s)
        return Binding(self._cluster_id, topic_id, self._plan.group, self._plan.topic, partition)

    def _answer(self, partition: int, question: Question, timeout_s: float) -> Any:
        match question:
            case AskLog():
                return LogFacts(*self._source.watermarks(partition, timeout_s))
            case AskCommitted():
                found = self._source.committed([partition], timeout_s)[partition]
                return None if found is None else found.offset

    def _patiently(self, question: Callable[[float], T], check: Callable[[Exception], None]) -> T:
        return patiently(question, clock=self._around.clock, give_up_s=self._plan.give_up_s, check=check)


def patiently(
    question: Callable[[float], T], *, clock: Callable[[], float], give_up_s: float, check: Callable[[Exception], None]
) -> T:
    """Retries a broker request until it succeeds or `give_up_s` has passed.

    `check` is given each failure before the next try, and raises when nobody waits any more.
    """
    deadline = clock() + give_up_s
    while True:
        try:
            return question(QUESTION_S)
        except (TimeoutError, BrokerUnavailableError) as error:
            check(error)
            if clock() >= deadline:
                raise BrokerRefusedError(f"{error}, and not for {give_up_s:g} s; {CHECK_IT}") from None
