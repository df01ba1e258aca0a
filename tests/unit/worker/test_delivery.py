"""The committed offset is the newest manifest's, and its metadata says whether that state is published."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sfd_stream.loop.runtime import Runtime
from sfd_stream.state.policy import Backlog, Pending, SnapshotPolicy
from sfd_stream.storage.memory import MemoryStore
from sfd_stream.wire.snapshots import Message
from sfd_stream.worker.delivery import Delivery
from sfd_stream.worker.partitions import OwnedPartition
from tests.support.watched import Stage
from tests.system.fakes import Diary, FakeSource
from tests.unit.worker.chains import driven
from tests.unit.worker.test_transactional import DATA, FakeChain, manifest


@pytest.mark.parametrize("error", ["MSG_TIMED_OUT", None])
def test_a_snapshot_that_is_not_acknowledged_stays_pending_and_its_offset_is_committed_as_unpublished(
    error: str | None,
) -> None:
    source: Any = FakeSource({0: []})
    sink: Any = SimpleNamespace(publish=lambda *_: SimpleNamespace(done=True, delivered=error is None, error=error))
    encoder: Any = SimpleNamespace(topic="snapshots", message=lambda encoded, _: Message(b"key", encoded, ()))
    chain: Any = FakeChain(manifest(5, due=5))
    log: Any = Diary()
    columns: Any = None
    delivery = Delivery(
        runtime=Runtime(MemoryStore("commits")),
        source=source,
        log=log,
        watch=Stage(0).watch,
        policy=SnapshotPolicy(None, None),
        encoder=encoder,
        sink=sink,
    )
    owned = OwnedPartition(0, chain, log, 0.0, backlog=Backlog(columns, 0, Pending(0.0), Pending(0.0)))
    driven(delivery.deliver(owned, DATA), delivery.runtime)
    assert chain.has_pending_snapshot == (error is not None)
    assert log.said("snapshot publish failed, will retry") == (error is not None)
    assert source.acknowledged_commits == {0: (50, "" if error is None else "unpublished")}
