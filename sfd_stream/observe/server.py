"""One HTTP port for those who watch: on a thread of its own, GET only, with a limit on everything.

An event loop rather than a thread a connection: a thousand idle or slow connections cost a few kilobytes each and no
time at all, where a thousand threads would contend with the worker for the interpreter. What could still take time from
the worker, many requests at once, is paced: answers are made at most so often, and shared.
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
"""File handles that are left to the worker, whatever the number of connections."""

HEAD_BYTES_MAX = 8_192
HEAD_S, IDLE_S, SEND_S = 10.0, 60.0, 30.0
"""For a request to come whole once begun; for the next to begin; for a slow reader to take a chunk."""

CHUNK_BYTES = 16_384
"""What a slow reader may make us keep; the answer itself is shared by all."""

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
    """Health is answered at once, even in a flood: a probe must not fail because of others."""


class Shared:
    """One answer for all who ask within `seconds`."""

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
    """A socket that listens; port 0 picks a free one. SettingsError when it can't be had."""
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
    """`start`, then it answers until `close`. Neither waits for anybody who is connected."""

    def __init__(self, listener: socket.socket, routes: Mapping[str, Route]) -> None:
        self.host, self.number = listener.getsockname()[:2]
        self._listener = listener
        self._loopback = ip_address(self.host).is_loopback
        self._routes = routes
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name="http", daemon=True)
        self._connections: dict[asyncio.Task[None], bool] = {}
        """Open connections, the longest unheard of first; whether each is idle."""
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
        with contextlib.suppress(RuntimeError):  # it ended already
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(2.0)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(lambda *_: None)  # a connection that broke is nobody's concern
        try:
            self._loop.run_until_complete(self._until_closed())
        finally:
            self._loop.close()

    async def _until_closed(self) -> None:
        server = await asyncio.start_server(self._accept, sock=self._listener, limit=HEAD_BYTES_MAX)
        await self._over.wait()  # set already if it was closed before it began
        await self._shut(server)

    async def _shut(self, server: asyncio.Server) -> None:
        """Accepts nothing more, starts what was accepted, and only then cancels: a task that is cancelled before it ran
        once, or a server that is closed before, would leave an accepted connection open.
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
        """Lets the event loop start accepted connections, or close transports: both take up to three of its turns."""
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
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # gone, or too slow
        finally:
            self._connections.pop(task, None)
            writer.transport.abort() if task.cancelling() else writer.close()

    def _make_room(self) -> None:
        """Closes the connection that has been idle for longest, so that a new one, perhaps a probe, is answered."""
        idle = next((task for task, waits in self._connections.items() if waits), None)
        victim = idle or next(iter(self._connections))
        self._connections.pop(victim)
        victim.cancel()

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, http: h11.Connection, task: asyncio.Task[None]
    ) -> bool:
        """Answers one request; returns whether the connection stays open."""
        first = await asyncio.wait_for(reader.readexactly(1), IDLE_S)
        self._heard(task, idle=False)
        request = None
        try:
            head = first + await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S)
            request = requested(http, head)
            answer = await self._answer(request)
        except asyncio.LimitOverrunError:
            answer = Response.text(431, "the request's head is too long")
        except h11.RemoteProtocolError as error:
            answer = Response.text(400, f"this is not HTTP/1.1: {error}")
        await _send(writer, http, answer, head_only=request is not None and request.method == b"HEAD")
        self._heard(task, idle=True)
        return http.our_state is http.their_state is h11.DONE

    def _heard(self, task: asyncio.Task[None], *, idle: bool) -> None:
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
            return Response.text(500, f"this can't be shown now: {type(error).__name__}")

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
        """Waits for its turn; False if that would take too long."""
        now = self._loop.time()
        wait_s = max(self._free_s - now, 0.0)
        if wait_s > WAIT_MAX_S:
            return False
        self._free_s = max(self._free_s, now) + 1 / REQUESTS_PER_S
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        return True


def requested(http: h11.Connection, head: bytes) -> h11.Request:
    """The request in a whole head. RemoteProtocolError for what is not HTTP/1.1, or has a body."""
    http.receive_data(head)
    request = http.next_event()
    if head.lower().count(b"\r\ncontent-length:") > 1:  # h11 takes equal ones for one
        raise h11.RemoteProtocolError("a header stands twice that may stand once")
    if not isinstance(request, h11.Request) or not isinstance(http.next_event(), h11.EndOfMessage):
        raise h11.RemoteProtocolError("a request has no body here")
    return request


def is_own_name(host: str) -> bool:
    """Whether a request's Host is a name of this machine that no other can have: a page whose name
    was made to resolve to a loopback address (DNS rebinding) comes with its own.
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
        **({} if http.their_state is h11.DONE else {"Connection": "close"}),
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


def _room_for_connections() -> int:
    """As many as the system's limit on open files allows, which is raised as far as it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + 2 * FILES_KEPT
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else min(CONNECTIONS_MAX, max(soft - FILES_KEPT, 16))
