"""What is shown of a worker while it runs, on a fake source: also what it does not read yet."""

from __future__ import annotations

import pytest

from sfd_stream.service.showing import ENDS_EVERY_S, Showing
from sfd_stream.service.status import PartitionStatus
from sfd_stream.service.worker import Worker
from tests.parts.watched import AtOnce, Clock
from tests.service.fakes import rows, worker_on
from tests.service.test_worker import opened, reading, turn_until


def looks(worker: Worker, showing: Showing, clock: Clock) -> tuple[PartitionStatus, ...]:
    """Twice, as what is asked in one is known in the next."""
    for _ in range(2):
        clock.now += ENDS_EVERY_S
        showing(worker)
    return worker.watch.status.partitions


@pytest.mark.parametrize(
    ("start", "committed", "begins_at"), [("earliest", {}, 0), ("earliest", {1: 40}, 40), ("latest", {}, 300)]
)
def test_a_partition_without_room_shows_where_it_begins_and_how_far_it_is_behind(
    start: str, committed: dict[int, int], begins_at: int
) -> None:
    worker, source, _ = worker_on({0: rows(10), 1: rows(300)}, memory_max_bytes=1, start=start, until_end=False)
    source.committed_offsets = committed
    opened(worker, source)
    turn_until(worker, lambda: reading(worker, 0))
    clock = worker.watch.clock
    assert isinstance(clock, Clock)
    showing = Showing(AtOnce(), clock)
    shown = looks(worker, showing, clock)[1]
    assert (shown.state, shown.applied, shown.lag) == ("waiting", begins_at, 300 - begins_at)
    source.logs[1] += rows(50)
    assert looks(worker, showing, clock)[1].lag == 350 - begins_at
    assert worker.watch.status.doing == "no room in memory for partition 1: unread until there is"
