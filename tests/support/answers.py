"""HTTP servers on loopback that answer as clouds do: every request the same, or each by what it asks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Answer = tuple[int, str, Mapping[str, str]]
"""Status, body, headers."""


class Answers:
    """`requests` has what was asked, as "METHOD /path?query"; `answer` is given the same."""

    def __init__(self, answer: Callable[[str], Answer]) -> None:
        self.requests: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(answer, self.requests))

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"


class OneAnswer(Answers):
    """To every request the same: what clouds say when they say no."""

    def __init__(self, status: int, body: str = "", **headers: str) -> None:
        super().__init__(lambda _: (status, body, headers))


def _handler(answer_to: Callable[[str], Answer], seen: list[str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            asked = f"{self.command} {self.path}"
            seen.append(asked)
            status, text, headers = answer_to(asked)
            body = text.encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_DELETE = do_HEAD = do_POST = answer  # noqa: N815 - the library's names

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
