"""Taking a partition over, beside the loop. What the broker must be asked is asked at the loop's desk, and briefly."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sfd_stream.errors import BrokerRefusedError
from sfd_stream.kafka.faults import CHECK_IT
from sfd_stream.kafka.source import Source
from sfd_stream.service.desk import Desk
from sfd_stream.service.keeper import AbandonedError, Surroundings
from sfd_stream.service.tenure import Plan, Tenure
from sfd_stream.state.manifest import Binding
from sfd_stream.state.partition import PartitionState, Shape
from sfd_stream.state.steps import AskCommitted, AskLog, AskOutputEpoch, LogFacts, Question

T = TypeVar("T")

QUESTION_S = 0.5
"""So long a question to the broker may hold up the loop; whoever asks asks again."""

TOPIC_ID_S = 5.0


class OutputEpochs:
    """The highest epoch that the output topic shows for each partition: a state begun anew must be above it [P].

    To know it of one partition the whole topic is read, so that all partitions that were assigned together share one
    reading. May be asked by any thread.
    """

    def __init__(self, read: Callable[[], Mapping[int, int]], clock: Callable[[], float]) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._known: tuple[float, Mapping[int, int]] | None = None

    def of(self, partition: int, since_s: float) -> int | None:
        """As of some moment after `since_s`, when the partition became ours."""
        with self._lock:
            if self._known is None or self._known[0] < since_s:
                began_s = self._clock()
                self._known = began_s, self._read()
            return self._known[1].get(partition)


class Claims:
    """Made when the broker has told who it is. `partitions` is how many the topic had then."""

    def __init__(
        self,
        plan: Plan,
        around: Surroundings,
        source: Source,
        desk: Desk,
        cluster_id: str,
        partitions: int,
        output_epochs: OutputEpochs | None,
    ) -> None:
        self._plan = plan
        self._around = around
        self._source = source
        self._desk = desk
        self._cluster_id = cluster_id
        self._partitions = partitions
        self._output_epochs = output_epochs

    def claim(self, tenure: Tenure, shape: Shape) -> PartitionState:
        """The partition's newest state, ours from now on."""
        partition, keeper = tenure.partition, tenure.keeper

        def check() -> None:
            if keeper.abandoned.is_set():
                raise AbandonedError(keeper.where)

        def answer(question: Question) -> Any:
            if isinstance(question, AskOutputEpoch):
                known = self._output_epochs
                return None if known is None else known.of(partition, tenure.assigned_s)

            def ask(_: float) -> Any:
                return self._desk.ask(lambda: self._answer(partition, question), keeper.abandoned)

            return self._patiently(ask, check)

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

    def _answer(self, partition: int, question: Question) -> Any:
        """On the loop's thread."""
        match question:
            case AskLog():
                return LogFacts(*self._source.watermarks(partition, QUESTION_S))
            case AskCommitted():
                found = self._source.committed([partition], QUESTION_S)[partition]
                return None if found is None else found.offset

    def _patiently(self, question: Callable[[float], T], check: Callable[[], None]) -> T:
        return patiently(question, clock=self._around.clock, give_up_s=self._plan.give_up_s, check=check)


def patiently(
    question: Callable[[float], T], *, clock: Callable[[], float], give_up_s: float, check: Callable[[], None]
) -> T:
    """Asks a broker that may be away for as long as it may be. `check` raises when nobody waits any more."""
    deadline = clock() + give_up_s
    while True:
        try:
            return question(QUESTION_S)
        except TimeoutError as error:
            check()
            if clock() >= deadline:
                raise BrokerRefusedError(f"{error}, and not for {give_up_s:g} s; {CHECK_IT}") from None
