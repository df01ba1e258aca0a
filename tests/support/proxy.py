"""A TCP proxy on loopback that can lose answers: the work is done, and the client never hears of it."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from typing import Self
from urllib.parse import urlsplit


class LossyProxy:
    """Passes everything on to `endpoint`, except that the next `cut` answers end the connection instead.

    While answers are held, the connection stays open and silent. While `refusing` is set, connections are closed.
    """

    def __init__(self, endpoint: str) -> None:
        where = urlsplit(endpoint)
        assert where.hostname is not None
        assert where.port is not None
        self._target = (where.hostname, where.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._to_cut = 0
        self.answers_lost = 0
        self.refusing = threading.Event()
        self.flowing = threading.Event()
        self.flowing.set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.flowing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut_answers(self, count: int) -> None:
        with self._lock:
            self._to_cut = count

    def hold_answers(self) -> None:
        self.flowing.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = self._connected()
                except OSError:
                    _close(client)
                    continue
                threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answers, args=(client, server), daemon=True).start()

    def _connected(self) -> socket.socket:
        if self.refusing.is_set():
            raise ConnectionRefusedError
        return socket.create_connection(self._target)

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                server.sendall(data)
        _close(server)

    def _answers(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65_536):
                if self._is_lost():
                    break
                self.flowing.wait()
                client.sendall(self.changed(data))
        _close(client)
        _close(server)

    def changed(self, answer: bytes) -> bytes:
        """As it is; another gateway may have other ideas."""
        return answer

    def _is_lost(self) -> bool:
        with self._lock:
            lost = self._to_cut > 0
            self._to_cut -= lost
            self.answers_lost += lost
            return lost


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


class ResettingProxy:
    """Passes everything on to a port of loopback, and disturbs connections on request.

    `break_connections` resets all connections, and each new one at once. `cut_connections` closes those that are open.
    `hold` keeps them open and silent, `slow` limits their rate, `lose_answers` discards what the server sends.
    `restore` ends all of these.
    """

    def __init__(self, target: int) -> None:
        self._target = ("127.0.0.1", target)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._broken = False
        self._flowing = threading.Event()
        self._flowing.set()
        self._bytes_per_s: float | None = None
        self._answers_lost = False
        self.resets = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.break_connections()
        self._flowing.set()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def break_connections(self) -> None:
        """From now on, until `restore`."""
        with self._lock:
            self._broken = True
            self._reset_all()

    def cut_connections(self) -> None:
        """Once; new connections are accepted."""
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)  # wakes both threads, which close it

    def hold(self) -> None:
        """What is sent arrives after `restore`."""
        self._flowing.clear()

    def slow(self, bytes_per_s: float) -> None:
        """Per connection and direction."""
        self._bytes_per_s = bytes_per_s

    def lose_answers(self) -> None:
        """Requests reach the server. `restore` then resets the connections, since part of their answers is missing."""
        self._answers_lost = True

    def restore(self) -> None:
        with self._lock:
            self._broken, self._bytes_per_s = False, None
            if self._answers_lost:
                self._reset_all()
            self._answers_lost = False
        self._flowing.set()

    def _reset_all(self) -> None:
        for one in self._open:
            self._reset(one)
        self._open.clear()

    def _reset(self, one: socket.socket) -> None:
        self.resets += 1
        with contextlib.suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.shutdown(socket.SHUT_RD)  # wakes the thread that reads; the close below then sends RST, not FIN
        one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._lock:
                    try:
                        server = None if self._broken else socket.create_connection(self._target)
                    except OSError:
                        server = None
                    if server is None:
                        self._reset(client)
                        continue
                    self._open |= {client, server}
                for source, sink in ((client, server), (server, client)):
                    passing = threading.Thread(target=self._pass_on, args=(source, sink, source is server), daemon=True)
                    passing.start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                self._flowing.wait()
                if self._bytes_per_s is not None:
                    time.sleep(len(data) / self._bytes_per_s)
                if not (answers and self._answers_lost):
                    sink.sendall(data)
        with self._lock:
            self._open -= {source, sink}
        _close(sink)
        _close(source)
