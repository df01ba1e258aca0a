"""What others see of a state: its snapshot encoded, then shown, then its offset told. Runs beside the loop.

idempotent     show: the bytes onto the topic, acknowledged      commit: the offset, at the loop's desk
transactional  show: bytes and offset at once                    commit: nothing is left to tell
no topic       show: nothing                                     commit: the offset, at the loop's desk
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Protocol, TypeVar

from sfd_stream.kafka.sink import Sink
from sfd_stream.kafka.source import Source
from sfd_stream.service.claims import TOPIC_ID_S
from sfd_stream.service.committing import Committing
from sfd_stream.service.courier import Courier
from sfd_stream.service.keeper import Surroundings
from sfd_stream.service.publisher import Publisher
from sfd_stream.service.publishing import Publishing
from sfd_stream.service.tenure import Plan, Tenure
from sfd_stream.service.watch import Watch
from sfd_stream.state.manifest import Binding, Manifest
from sfd_stream.state.partition import Frozen, sketch_of

T = TypeVar("T")


class Host(Protocol):
    """What is needed of the worker."""

    plan: Plan
    around: Surroundings
    source: Source
    watch: Watch
    committing: Committing

    def ask(self, tenure: Tenure, question: Callable[[], T]) -> T: ...


class Delivery:
    """`publishing` is None where nothing is to be shown, `courier` where it is not to be shown in transactions."""

    def __init__(self, host: Host, sink: Sink | None, publishing: Publishing | None, courier: Courier | None) -> None:
        self.publishing = publishing
        self._host = host
        self._publisher = None if sink is None or publishing is None else Publisher(host, sink, publishing)
        self._courier = courier
        self._partitions = 0
        """Of the input topic, as last told."""

    @property
    def shows(self) -> bool:
        return self.publishing is not None

    @property
    def commits_itself(self) -> bool:
        """Whether offsets go with the transactions, and so never by themselves."""
        return self._courier is not None

    def is_due(self, tenure: Tenure, now_s: float) -> bool:
        return self.publishing is not None and self.publishing.is_due(tenure, now_s)

    def is_again_due(self, tenure: Tenure, now_s: float) -> bool:
        return self.publishing is not None and self.publishing.is_again_due(tenure, now_s)

    # Beside the loop

    def encode(self, tenure: Tenure, frozen: Frozen, binding: Binding) -> bytes:
        """The snapshot of exactly this state; those who watch see its sketch too, as it is made already."""
        manifest, shape = tenure.keeper.manifest, self._host.plan.shape(tenure.partition)
        assert manifest is not None
        assert self.publishing is not None
        partitions = self._partition_count()
        with self._host.around.computing():
            sketch, made_at_s = sketch_of(frozen, shape), self._host.around.wall_clock()
            self._host.watch.looker.see(tenure.partition, sketch, frozen.columns)
            return self.publishing.encode(sketch, frozen, manifest.next_state_id, binding, partitions, made_at_s)

    def _partition_count(self) -> int:
        with contextlib.suppress(TimeoutError):  # as many as were known last
            self._partitions = self._host.source.partition_count(TOPIC_ID_S)
        return self._partitions

    def know_partitions(self, count: int) -> None:
        self._partitions = count

    def show(self, tenure: Tenure, snapshot: bytes | None) -> None:
        """`snapshot`: the bytes of the one that the newest manifest has due, if it has."""
        if self._courier is not None:
            self._courier.deliver(tenure, snapshot)
        elif snapshot is not None:
            assert self._publisher is not None
            self._publisher.publish(tenure, snapshot)

    def commit(self, tenure: Tenure, manifest: Manifest) -> None:
        if self._courier is not None:
            return
        reach = self._host.around.reach
        reach("before-commit")
        self._host.ask(tenure, lambda: self._host.committing.commit(tenure, manifest.next_offset))
        reach("after-commit")

    def show_again(self, tenure: Tenure) -> None:
        """The newest snapshot once more, under its own id; or, in transactions, what could not be delivered."""
        keeper = tenure.keeper
        was_published = keeper.is_published
        self.show(tenure, None if self._courier is not None else keeper.snapshot_bytes())
        if keeper.is_published and not was_published:
            assert keeper.manifest is not None
            self.commit(tenure, keeper.manifest)  # its metadata says that the state is published

    def take_over(self, tenure: Tenure) -> None:
        """What the last owner left due, under its own id."""
        keeper = tenure.keeper
        if self.shows:
            self.show(tenure, keeper.unpublished)
        keeper.unpublished = None

    def close(self) -> None:
        if self._courier is not None:
            self._courier.close()
