"""The proxy between parts does to connections what its methods say."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from tests.support.proxy import ResettingProxy

SILENT_S = 0.3


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.request.recv(1_000):
                self.server.heard.append(data)  # type: ignore[attr-defined]
                self.request.sendall(data)


@pytest.fixture
def server() -> Iterator[socketserver.ThreadingTCPServer]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads, server.heard = True, []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def link(server: socketserver.ThreadingTCPServer) -> Iterator[ResettingProxy]:
    with ResettingProxy(server.server_address[1]) as link:
        yield link


@pytest.fixture
def client(link: ResettingProxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", link.port), timeout=10) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"
        yield client


def ended(client: socket.socket) -> bool:
    """Whether the other side has closed or reset the connection."""
    try:
        return client.recv(100) == b""
    except ConnectionError:
        return True


def test_a_cut_connection_ends_and_a_new_one_works(link: ResettingProxy, client: socket.socket) -> None:
    link.cut_connections()
    assert ended(client)
    with socket.create_connection(("127.0.0.1", link.port), timeout=10) as again:
        again.sendall(b"again")
        assert again.recv(100) == b"again"


def test_a_held_connection_is_silent_and_then_delivers(link: ResettingProxy, client: socket.socket) -> None:
    link.hold()
    client.sendall(b"late")
    client.settimeout(SILENT_S)
    with pytest.raises(TimeoutError):
        client.recv(100)
    link.restore()
    client.settimeout(10)
    assert client.recv(100) == b"late"


def test_a_request_whose_answer_is_lost_reaches_the_server(
    link: ResettingProxy, client: socket.socket, server: socketserver.ThreadingTCPServer
) -> None:
    link.lose_answers()
    client.sendall(b"request")
    client.settimeout(SILENT_S)
    with pytest.raises(TimeoutError):
        client.recv(100)
    assert server.heard[-1] == b"request"  # type: ignore[attr-defined]
    link.restore()
    client.settimeout(10)
    assert ended(client), "part of the answers is missing, so the connection can't go on"


def test_a_slow_connection_delivers_everything(link: ResettingProxy, client: socket.socket) -> None:
    link.slow(1_000)
    client.sendall(b"x" * 200)
    found = b""
    while len(found) < 200:
        found += client.recv(1_000)
    assert found == b"x" * 200
