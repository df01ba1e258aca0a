"""A TCP proxy on loopback that can lose answers: the work is done, and the client never hears of it."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
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
    """Passes everything on to a port of loopback. While `broken`, every connection is reset, a new one at once."""

    def __init__(self, target: int) -> None:
        self._target = ("127.0.0.1", target)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._broken = False
        self.resets = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.break_connections()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def break_connections(self) -> None:
        """From now on, until `mend`."""
        with self._lock:
            self._broken = True
            for one in self._open:
                self._reset(one)
            self._open.clear()

    def mend(self) -> None:
        with self._lock:
            self._broken = False

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
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
        with self._lock:
            self._open -= {source, sink}
        _close(sink)
        _close(source)
