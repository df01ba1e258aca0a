"""On a real broker: a request that arrives again after its connection was lost does not end the next transaction."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from sfd_stream.kafka.transactional_producer import TransactionalSink
from tests.support.kafka import LocalBroker
from tests.support.kafka_fixtures import behind
from tests.support.proxy import ResettingProxy
from tests.unit.kafka.test_transactional_producer import Case

pytestmark = pytest.mark.real_kafka
END_TXN = 26


class HoldingProxy(ResettingProxy):
    """After `hold_end` it keeps the next request that ends a transaction, and cuts all connections. `release` sends
    what it kept to the broker and waits for the answer.
    """

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self._holding = threading.Event()
        self.kept: bytes | None = None

    def hold_end(self) -> None:
        self._holding.set()

    def release(self) -> None:
        assert self.kept is not None, "no transaction was ended"
        with socket.create_connection(self._target, timeout=20) as server:
            server.sendall(self.kept)
            assert server.recv(256)

    def _pass_on(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        if answers:
            super()._pass_on(source, sink, answers)
            return
        with contextlib.suppress(OSError, EOFError):
            while True:
                head = _read(source, 4)
                request = head + _read(source, struct.unpack(">i", head)[0])
                if struct.unpack(">h", request[4:6])[0] == END_TXN and self._holding.is_set():
                    self._holding.clear()
                    self.kept = request
                    self.cut_connections()
                    break
                sink.sendall(request)
        super()._pass_on(source, sink, answers)  # which ends both


def _read(source: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        data = source.recv(count - len(found))
        if not data:
            raise EOFError
        found += data
    return found


@pytest.fixture
def proxied() -> Iterator[tuple[LocalBroker, HoldingProxy]]:
    with behind(HoldingProxy) as both:
        yield both


@pytest.mark.slow
def test_a_request_that_the_client_repeated_does_not_end_the_next_transaction(
    proxied: tuple[LocalBroker, HoldingProxy],
) -> None:
    """Without a new producer the offset of the next transaction was visible without its message."""
    broker, proxy = proxied
    case = Case(broker)
    membership, points, seen = case.member.until_assigned(), [], []

    def reach(point: str) -> None:
        points.append(point)
        if points.count("before-end") == 1 and point == "before-end":
            proxy.hold_end()
        if points.count("after-offsets") == 2 and point == "after-offsets":
            proxy.release()
            seen.append((broker_offset(), case.seen()))

    def broker_offset() -> tuple[int, str] | None:
        with contextlib.suppress(TimeoutError):
            return case.committed(2.0)
        return None

    sink: TransactionalSink = case.sink(reach=reach, timeout_ms=60_000)
    sink.commit([case.offset(1)], membership, [case.message(1)])
    sink.commit([case.offset(2)], membership, [case.message(2)])
    assert seen == [(None, [case.message(1).value])], "while the second is open its offset is unknown"
    assert (case.committed(), len(case.seen())) == ((2, "state 2"), 2)
    case.member.source.close(5)
