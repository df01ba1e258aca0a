"""The HTTP port for status and metrics: GET only, on a separate thread, with limits on sizes, times and connections.

It uses an event loop, not a thread per connection: a thousand idle or slow connections need a few kilobytes each and no
processor time. A thousand threads would compete with the worker for the interpreter. Many requests at once are paced:
a response is computed at limited intervals and shared by all.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import resource
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address
from typing import NamedTuple

import h11

from sfd_stream.errors import SettingsError

CONNECTIONS_MAX = 2_000
FILES_KEPT = 256
"""Number of file handles reserved for the worker."""

HEAD_BYTES_MAX = 8_192
HEAD_S, IDLE_S, SEND_S = 10.0, 60.0, 30.0
"""Time limits: to receive a whole request, until the next request begins, and to send a chunk to a slow client."""

LINGER_S = 1.0
"""Time limit for a client to read the last answer and to close, before the port closes the connection."""

CHUNK_BYTES = 16_384
"""Memory per slow client. The response itself is shared by all clients."""

REQUESTS_PER_S = 200.0
WAIT_MAX_S = 5.0


class Response(NamedTuple):
    code: int
    content_type: str
    body: bytes
    policy: str = "default-src 'none'"
    """Content-Security-Policy."""

    @classmethod
    def text(cls, code: int, words: str) -> Response:
        return cls(code, "text/plain; charset=utf-8", f"{words}\n".encode())


Handler = Callable[[], Awaitable[Response]]


@dataclass(frozen=True)
class Route:
    handler: Handler
    paced: bool = True
    """False for health routes: they respond at once, so that a probe does not fail because of other clients."""


class Shared:
    """One response for all requests within `seconds`."""

    def __init__(self, handler: Handler, seconds: float) -> None:
        self._handler = handler
        self._seconds = seconds
        self._lock = asyncio.Lock()
        self._made_s = float("-inf")
        self._answer: Response | None = None

    async def __call__(self) -> Response:
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if self._answer is None or now - self._made_s > self._seconds:
                self._answer = await self._handler()
                self._made_s = asyncio.get_running_loop().time()
            return self._answer


def listening(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 picks a free one. SettingsError if the address is not available."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen(1_024)
        except OSError:
            found.close()
            raise
    except OSError as error:
        raise _refusal(host, port, error) from error
    return found


def _refusal(host: str, port: int, error: OSError) -> SettingsError:
    if error.errno == errno.EADDRINUSE:
        return SettingsError(
            f"http.port {port} of {host} is in use, perhaps by another worker: set another http.port, or 0 to pick one"
        )
    if isinstance(error, socket.gaierror):
        return SettingsError(f"http.host {host} has no address ({error.strerror}): set one of this machine's")
    return SettingsError(f"http.port {port} of {host} can't be opened ({error.strerror}): set another host or port")


class Port:
    """Responds from `start` until `close`. Neither waits for a client."""

    def __init__(self, listener: socket.socket, routes: Mapping[str, Route]) -> None:
        self.host, self.number = listener.getsockname()[:2]
        self._listener = listener
        self._loopback = ip_address(self.host).is_loopback
        self._routes = routes
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name="http", daemon=True)
        self._connections: dict[asyncio.Task[None], bool] = {}
        """Open connections, the one with the oldest activity first; the value says whether it is idle."""
        self._free_s = 0.0
        self._most = CONNECTIONS_MAX

    @property
    def address(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.number}/"

    @property
    def connections(self) -> int:
        return len(self._connections)

    def start(self) -> None:
        self._most = _room_for_connections()
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(2.0)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(lambda *_: None)  # a broken connection is not an error of ours
        try:
            self._loop.run_until_complete(self._until_closed())
        finally:
            self._loop.close()

    async def _until_closed(self) -> None:
        server = await asyncio.start_server(self._accept, sock=self._listener, limit=HEAD_BYTES_MAX)
        await self._over.wait()  # it is set already if `close` came before the start
        await self._shut(server)

    async def _shut(self, server: asyncio.Server) -> None:
        """Stops accepting, starts the tasks of accepted connections, and only then cancels them. A task that is
        cancelled before it ran once, or a server that is closed before, would leave an accepted connection open.
        """
        self._loop.remove_reader(self._listener)
        await self._turns()
        server.close()
        for _ in range(10):  # `wait_for` of Python 3.11 may ignore a cancellation, so it is repeated
            tasks = asyncio.all_tasks(self._loop) - {asyncio.current_task()}
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=0.1)
        await self._turns()

    @staticmethod
    async def _turns() -> None:
        """Lets the event loop start accepted connections or close transports. Both need up to three iterations."""
        for _ in range(4):
            await asyncio.sleep(0)

    # Connections

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= self._most:
            self._make_room()
        self._connections[task] = True
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        try:
            writer.transport.set_write_buffer_limits(high=CHUNK_BYTES)
            while await self._exchange(reader, writer, http, task):
                http.start_next_cycle()
            await _end(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # closed, or too slow
        finally:
            self._connections.pop(task, None)
            writer.transport.abort() if task.cancelling() else writer.close()

    def _make_room(self) -> None:
        """Closes the connection that has been idle for longest, so that a new one, perhaps a probe, gets a response."""
        idle = next((task for task, waits in self._connections.items() if waits), None)
        victim = idle or next(iter(self._connections))
        self._connections.pop(victim)
        victim.cancel()

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, http: h11.Connection, task: asyncio.Task[None]
    ) -> bool:
        """Responds to one request. Returns whether the connection stays open."""
        first = await asyncio.wait_for(reader.readexactly(1), IDLE_S)
        self._touch(task, idle=False)
        request = None
        try:
            head = first + await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S)
            http.receive_data(head)
            request = http.next_event()
            answer = await self._answer(whole(http, head, request))
        except asyncio.LimitOverrunError:
            answer = Response.text(431, "the request's head is too long")
        except h11.RemoteProtocolError as error:
            answer = Response.text(400, f"this is not HTTP/1.1: {error}")
        await _send(writer, http, answer, head_only=isinstance(request, h11.Request) and request.method == b"HEAD")
        self._touch(task, idle=True)
        return http.our_state is http.their_state is h11.DONE

    def _touch(self, task: asyncio.Task[None], *, idle: bool) -> None:
        if self._connections.pop(task, None) is not None:
            self._connections[task] = idle

    async def _answer(self, request: h11.Request) -> Response:
        if (refusal := self._refusal_of(request)) is not None:
            return refusal
        route = self._routes.get(request.target.decode("latin-1").partition("?")[0])
        if route is None:
            return Response.text(404, f"there is {', '.join(sorted(self._routes))}")
        if route.paced and not await self._paced():
            return Response.text(503, "too many requests: try again later")
        try:
            return await route.handler()
        except Exception as error:  # noqa: BLE001 - a page that can't be made must not end the port
            return Response.text(500, f"no answer can be computed now: {type(error).__name__}")

    def _refusal_of(self, request: h11.Request) -> Response | None:
        host = dict(request.headers).get(b"host")
        if self._loopback and host is not None and not is_own_name(host.decode("latin-1").lower()):
            return Response.text(
                421, "only requests to localhost are answered here; set http.host to serve other names"
            )
        if request.method not in (b"GET", b"HEAD"):
            return Response.text(405, "only GET is answered here")
        return None

    async def _paced(self) -> bool:
        """Waits until the request may be served. False if that would take too long."""
        now = self._loop.time()
        wait_s = max(self._free_s - now, 0.0)
        if wait_s > WAIT_MAX_S:
            return False
        self._free_s = max(self._free_s, now) + 1 / REQUESTS_PER_S
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        return True


def whole(http: h11.Connection, head: bytes, request: object) -> h11.Request:
    """Checks a parsed head: one request and nothing else. RemoteProtocolError for a body and all that is ambiguous."""
    if b"\n" in head.replace(b"\r\n", b""):  # h11 would end the head at two of them and keep the rest for the next one
        raise h11.RemoteProtocolError("a line ends without a carriage return")
    if head.lower().count(b"\r\ncontent-length:") > 1:  # h11 accepts equal duplicates
        raise h11.RemoteProtocolError("a header is repeated that may occur only once")
    if not isinstance(request, h11.Request) or not isinstance(http.next_event(), h11.EndOfMessage):
        raise h11.RemoteProtocolError("a request has no body here")
    return request


def is_own_name(host: str) -> bool:
    """Whether a request's Host is a name that only this machine can have. A page whose name resolves to a loopback
    address (DNS rebinding) sends its own name.
    """
    name = host.rpartition(":")[0] if re.search(r"[^:]:\d*$", host) else host
    if name in ("localhost", socket.gethostname().lower()):
        return True
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


async def _send(writer: asyncio.StreamWriter, http: h11.Connection, answer: Response, *, head_only: bool) -> None:
    headers = {
        "Content-Type": answer.content_type,
        "Content-Length": str(len(answer.body)),
        "Content-Security-Policy": answer.policy,
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
        **({"Allow": "GET, HEAD"} if answer.code == 405 else {}),
        **({} if http.their_state is h11.DONE and answer.code != 400 else {"Connection": "close"}),
    }
    body = b"" if head_only else answer.body
    reason = HTTPStatus(answer.code).phrase
    await _write(writer, http, h11.Response(status_code=answer.code, headers=[*headers.items()], reason=reason))
    for at in range(0, len(body), CHUNK_BYTES):
        await _write(writer, http, h11.Data(data=body[at : at + CHUNK_BYTES]))
    await _write(writer, http, h11.EndOfMessage())


async def _write(writer: asyncio.StreamWriter, http: h11.Connection, event: h11.Event) -> None:
    writer.write(http.send(event) or b"")
    await asyncio.wait_for(writer.drain(), SEND_S)


async def _end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Says that no more answers follow, and drops what the client still sends (RFC 9112, section 9.6). A close with
    unread input would reset the connection, and the kernel would drop an answer that has not arrived yet.
    """
    writer.write_eof()
    async with asyncio.timeout(LINGER_S):
        while await reader.read(CHUNK_BYTES):
            pass


def _room_for_connections() -> int:
    """Maximum number of connections. It depends on the limit on open files, which is raised as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + 2 * FILES_KEPT
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else min(CONNECTIONS_MAX, max(soft - FILES_KEPT, 16))
