"""The port: what it answers, what it refuses, and that nobody who is connected can hold it up."""

from __future__ import annotations

import asyncio
import gc
import http.client
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from benchmarks.watching import connected
from sfd_stream.errors import SettingsError
from sfd_stream.observe import server
from sfd_stream.observe.routes import routes_of
from sfd_stream.observe.server import Port, Response, Route, Shared, listening
from tests.support.watched import Stage
from tests.system.runs import wait_until


@contextmanager
def port_of(stage: Stage | None = None, routes: dict[str, Route] | None = None) -> Iterator[Port]:
    port = Port(listening("127.0.0.1", 0), routes or routes_of((stage or Stage()).watch, 60.0))
    port.start()
    try:
        yield port
    finally:
        port.close()


def where(port: Port) -> tuple[str, int]:
    host, _, number = port.address.removeprefix("http://").rstrip("/").rpartition(":")
    return host, int(number)


def ask(
    port: Port, path: str, method: str = "GET", body: bytes | None = None
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection(*where(port), timeout=10)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def test_it_refuses_everything_but_get_of_what_there_is() -> None:
    with port_of() as port:
        assert ask(port, "/nothing")[0] == 404
        assert ask(port, "/metrics?debug=1")[0] == 200
        code, headers, _ = ask(port, "/metrics", "POST")
        assert (code, headers["Allow"]) == (405, "GET, HEAD")
        assert ask(port, "/metrics", "GET", b"body")[0] == 400
        code, headers, body = ask(port, "/metrics", "HEAD")
        assert (code, body) == (200, b"")
        assert int(headers["Content-Length"]) > 1_000


@pytest.mark.parametrize(
    ("sent", "answered"),
    [(b"nonsense\r\n\r\n", b"400"), (b"GET / HTTP/1.1\r\nA: " + b"a" * 20_000 + b"\r\n\r\n", b"431")],
)
def test_what_is_not_http_is_answered_and_shut(sent: bytes, answered: bytes) -> None:
    with port_of() as port, socket.create_connection(where(port), timeout=10) as client:
        client.sendall(sent)
        assert client.recv(64).split(b" ")[1] == answered


def test_a_refusal_reaches_a_client_that_sends_more_than_the_port_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A close with unread input resets the connection, and the kernel drops an answer that has not arrived yet."""
    monkeypatch.setattr(server, "LINGER_S", 10.0)
    with port_of() as port:
        for _ in range(20):
            with socket.create_connection(where(port), timeout=10) as client:
                client.sendall(b"nonsense\r\n\r\n" + b"a" * 1_000_000)
                client.shutdown(socket.SHUT_WR)
                with client.makefile("rb") as answer:
                    assert answer.read().split(b" ")[1] == b"400"


def test_a_client_that_stays_after_a_refusal_is_closed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LINGER_S", 0.1)
    with port_of() as port, socket.create_connection(where(port), timeout=10) as client:
        client.sendall(b"nonsense\r\n\r\n")
        with client.makefile("rb") as answer:
            assert answer.read().split(b" ")[1] == b"400"
        wait_until(lambda: port.connections == 0, "the port closes the connection")


def test_a_connection_accepted_in_the_moment_of_closing_is_closed() -> None:
    """Its task is cancelled before it ran once; the socket that it was given must not stay open."""
    entered, leave = threading.Event(), threading.Event()

    async def blocking() -> Response:
        entered.set()
        leave.wait(10)  # blocks the event loop, so that what follows happens in one turn of it
        return Response.text(200, "ok")

    port = Port(listening("127.0.0.1", 0), {"/": Route(blocking)})
    port.start()
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(where(port), timeout=10)) for _ in range(2)]
        clients[0].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert entered.wait(10)
        late = [stack.enter_context(socket.create_connection(where(port), timeout=10)) for _ in range(5)]
        closing = threading.Thread(target=port.close)
        closing.start()
        wait_until(lambda: bool(port._loop._ready), "the port is asked to close")  # type: ignore[attr-defined]
        leave.set()
        closing.join()
        with warnings.catch_warnings(record=True) as unclosed:
            warnings.simplefilter("always", ResourceWarning)
            gc.collect()
        assert [str(warning.message) for warning in unclosed] == []
        assert all(is_closed(client) for client in late)


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def answered(port: Port, *fields: str, version: str = "HTTP/1.1") -> int:
    with socket.create_connection(where(port), timeout=10) as client:
        client.sendall("\r\n".join([f"GET /status.json {version}", *fields, "", ""]).encode())
        return int(client.recv(64).split(b" ")[1])


def test_on_a_loopback_address_only_its_own_names_are_answered() -> None:
    """A page whose name is made to resolve to 127.0.0.1 (DNS rebinding) must not read the status of a local worker."""
    with port_of() as port:
        own = ["localhost", "LOCALHOST:9464", "127.0.0.1:1", "127.1.2.3", "[::1]", "[::1]:9464", socket.gethostname()]
        assert {name: answered(port, f"Host: {name}") for name in own} == dict.fromkeys(own, 200)
        others = ["evil.example", "evil.example:9464", "localhost.evil.example", "10.0.0.1", "", "[::2]", "1270.0.1"]
        assert {name: answered(port, f"Host: {name}") for name in others} == dict.fromkeys(others, 421)
        assert answered(port, version="HTTP/1.0") == 200
        assert answered(port, "Host: localhost", "Host: evil.example") == 400


def test_on_another_address_any_name_is_answered() -> None:
    """In a cluster a worker is asked by the names of services and by the addresses of pods."""
    port = Port(listening("0.0.0.0", 0), routes_of(Stage().watch, 60.0))  # noqa: S104 - that is what is tried
    port.start()
    try:
        with socket.create_connection(("127.0.0.1", port.number), timeout=10) as client:
            client.sendall(b"GET /status.json HTTP/1.1\r\nHost: sketch.namespace.svc:9464\r\n\r\n")
            assert client.recv(64).split(b" ")[1] == b"200"
    finally:
        port.close()


@pytest.mark.parametrize("lengths", [("0", "0"), ("5", "0"), ("0", "5")])
def test_a_repeated_content_length_is_refused(lengths: tuple[str, str]) -> None:
    with port_of() as port:
        assert answered(port, "Host: localhost", *(f"Content-Length: {length}" for length in lengths)) == 400


def test_a_connection_serves_many_requests() -> None:
    with port_of() as port:
        connection = http.client.HTTPConnection(*where(port), timeout=10)
        for _ in range(5):
            connection.request("GET", "/healthz")
            assert connection.getresponse().read() == b"ok\n"
        connection.close()


def test_a_port_that_is_taken_is_a_clear_error() -> None:
    with (
        port_of() as port,
        pytest.raises(SettingsError, match=r"http\.port \d+ of 127\.0\.0\.1 is in use.*or 0 to pick"),
    ):
        listening(*where(port))
    with pytest.raises(SettingsError, match=r"http\.host nowhere\.invalid has no address"):
        listening("nowhere.invalid", 0)


def test_the_benchmark_counts_the_connections_that_are_open() -> None:
    with port_of() as port, connected(where(port), 30) as looks:
        wait_until(lambda: 30 in looks, "all of them open")
        assert port.connections == 30


def test_slow_and_idle_connections_hold_nobody_up() -> None:
    """Some send half a request, some never read their answer, most do nothing."""
    with port_of() as port, ExitStack() as stack:
        for number in range(300):
            client = stack.enter_context(socket.create_connection(where(port), timeout=10))
            if number % 3 == 1:
                client.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
            if number % 3 == 2:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
                client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
        assert ask(port, "/healthz")[0] == 200
        assert ask(port, "/metrics")[0] == 200
        assert port.connections >= 300


def test_a_probe_gets_in_when_all_places_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 20)
    with port_of() as port, ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(socket.create_connection(where(port), timeout=10))
        assert ask(port, "/healthz")[0] == 200
        assert port.connections <= 21


def test_many_who_ask_at_once_share_one_answer() -> None:
    made = []

    async def costly() -> Response:
        made.append(1)
        await asyncio.sleep(0.05)
        return Response.text(200, "done")

    with port_of(routes={"/": Route(Shared(costly, 60.0))}) as port:
        threads = [threading.Thread(target=ask, args=(port, "/")) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert made == [1]


def test_a_flood_waits_its_turn_but_health_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUESTS_PER_S", 0.001)
    monkeypatch.setattr(server, "WAIT_MAX_S", 0.5)
    with port_of() as port:
        assert [ask(port, "/metrics")[0] for _ in range(2)] == [200, 503]
        assert [ask(port, "/healthz")[0] for _ in range(3)] == [200] * 3


def test_an_answer_that_can_not_be_made_ends_nothing() -> None:
    async def broken() -> Response:
        raise RuntimeError("hunter2")

    with port_of(routes={"/": Route(broken)}) as port:
        code, _, body = ask(port, "/")
        assert (code, b"hunter2" in body) == (500, False)
        assert ask(port, "/")[0] == 500


def test_closing_waits_for_nobody() -> None:
    with port_of() as port:
        client = socket.create_connection(where(port), timeout=10)
        assert ask(port, "/healthz")[0] == 200
    assert not port._thread.is_alive()
    client.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            listening(*where_closed(port)).close()
        except SettingsError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("the port is still held")


def test_a_port_closed_before_it_began_leaves_nothing_open() -> None:
    for _ in range(20):
        with port_of() as port:
            pass
        assert not port._thread.is_alive()
        assert port._loop.is_closed()


def where_closed(port: Port) -> tuple[str, int]:
    return "127.0.0.1", port.number
