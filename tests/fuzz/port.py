"""Malformed and hostile requests to the HTTP port, by raw sockets on loopback.

    python -m tests.fuzz.port --requests 20000 --seed 7

Each case is one connection: one to three requests made of parts that are good, odd or wrong, some of them changed byte
by byte, sent in pieces, and then a good request. The laws:

- what ends like a request is answered, in well-formed HTTP/1.1, never with 500
- the answers are those of the requests, in order: the good request at the end gets its own, unless the port has closed
- every answer arrives: the port does not reset a connection, also when it refuses a request before it has read the rest
- a request for a foreign name gets no page
- nothing raises in the port, and no connection stays open
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sfd_stream.observe import server
from sfd_stream.observe.routes import routes_of
from sfd_stream.observe.server import Port, listening
from tests.support.watched import Stage

ANSWERS_WITHIN_S = 30.0
LAST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST_BODY = b"ok\n"
CODES = {200, 400, 404, 405, 421, 431, 503}
FOREIGN = (b"evil.example", b"evil.example:80", b"127.0.0.1.evil.example", b"localhost.evil.example", b"10.1.2.3")

METHODS = (b"GET", b"HEAD", b"POST", b"PUT", b"OPTIONS", b"CONNECT", b"TRACE", b"PRI", b"get", b"", b"G\0T", b"M" * 300)
TARGETS = (
    b"/", b"/metrics", b"/status.json", b"/readyz", b"/readyz?full=1", b"/nothing", b"*", b"//metrics", b"/../etc",
    b"http://localhost/metrics", b"localhost:80", b"/%00", b"/\xff\xfe", b"/a b", b"", b"/" + b"a" * 9_000, b"/\t",
)  # fmt: skip
VERSIONS = (b"HTTP/1.1", b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/11", b"http/1.1", b"", b"HTTP/1.1 more")
HOSTS = (
    b"localhost", b"localhost:8080", b"127.0.0.1", b"127.1.2.3:1", b"[::1]", b"[::1]:80", b"", b"[", b"[]:1", b":",
    b"\xff", b"localhost:", b"LOCALHOST", b" localhost ", b"0", *FOREIGN,
)  # fmt: skip
HEADERS = (
    b"Content-Length: 0", b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: 0, 0", b"Content-Length: 1e3",
    b"Content-Length: 99999999999999999999", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked",
    b"Connection: close", b"Connection: keep-alive", b"Connection: upgrade", b"Upgrade: h2c", b"Upgrade: websocket",
    b"Expect: 100-continue", b"Range: bytes=0-1", b"Accept-Encoding: gzip", b"X: " + b"a" * 9_000, b"no colon",
    b": none", b"X : space", b" folded", b"X:\0", b"X: \x7f\xff", b"Cookie: " + b"; ".join([b"a=b"] * 300), b"",
    b"Host: localhost",
)  # fmt: skip
MOSTLY = 0.8
ANSWER = re.compile(rb"HTTP/1\.1 (\d{3}) [A-Za-z' -]+\r\n((?:[A-Za-z-]+: [\x20-\x7e]*\r\n)+)\r\n")


@dataclass(frozen=True)
class Case:
    data: bytes
    pieces: tuple[int, ...]
    """Where it is cut into sends."""
    foreign: bool
    """Every request in it is for a name of another machine."""
    leaves: bool
    """It is cut off by a reset instead of being ended by a good request."""


@dataclass(frozen=True)
class Answer:
    code: int
    closes: bool
    body: bytes


def case_of(seed: int, number: int) -> Case:
    rng = random.Random(f"{seed} {number}")
    hosts = [rng.choice(FOREIGN)] if rng.random() < 0.2 else HOSTS
    data = b"".join(_request(rng, hosts) for _ in range(rng.choice((1, 1, 1, 2, 3))))
    changed = rng.random() < 0.3
    for _ in range(rng.randint(1, 4) if changed else 0):
        data = _changed(rng, data)
    pieces = tuple(sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice((0, 0, 0, 1, 3)))))
    foreign = not changed and set(hosts) <= set(FOREIGN) and b"Host: localhost" not in data
    return Case(data, pieces, foreign, rng.random() < 0.05)


def _pick(rng: random.Random, known: tuple[bytes, ...]) -> bytes:
    """Mostly the first, which is good."""
    return known[0] if rng.random() < MOSTLY else rng.choice(known)


def _request(rng: random.Random, hosts: Any) -> bytes:
    end = rng.choice((b"\n", b"\r", b"\r\n")) if rng.random() < 0.1 else b"\r\n"
    method, version = _pick(rng, METHODS), _pick(rng, VERSIONS)
    lines = [b" ".join((method, rng.choice(TARGETS), version)).rstrip(b" "), b"Host: " + rng.choice(hosts)]
    lines += rng.choices(HEADERS, k=rng.choice((0, 0, 1, 1, 2, 4)))
    if rng.random() < 0.02:
        lines += [b"X: y"] * 1_500
    body = (
        rng.choice((b"hello", b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"\0" * 20_000)) if rng.random() < 0.1 else b""
    )
    return end.join(lines) + end + end + body


def _changed(rng: random.Random, data: bytes) -> bytes:
    at, more = rng.randrange(len(data) + 1), rng.randint(1, 20)
    match rng.randrange(4):
        case 0:
            return data[:at] + rng.randbytes(rng.randint(1, 3)) + data[at:]
        case 1:
            return data[:at] + data[at + more :]
        case 2:
            return data[:at] + data[at : at + more] * 2 + data[at + more :]
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


# The laws


def exchange(address: tuple[str, int], case: Case) -> list[Answer]:
    """Sends the case; AssertionError for what breaks a law."""
    with socket.create_connection(address, timeout=ANSWERS_WITHIN_S) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for begin, end in zip((0, *case.pieces), (*case.pieces, len(case.data)), strict=True):
            client.sendall(case.data[begin:end])
        if case.leaves:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            return []
        client.sendall(LAST)
        client.shutdown(socket.SHUT_WR)
        found = answers_in(_read_all(client))
    assert all(answer.code in CODES for answer in found), f"codes {[answer.code for answer in found]}"
    assert not any(answer.closes for answer in found[:-1]), "answered after it said that it closes"
    own = bool(found) and (found[-1].code, found[-1].body) == (200, LAST_BODY)
    if case.data.endswith(b"\r\n\r\n"):
        assert found, "not answered"
        assert own or found[-1].closes, "the last answer is not the good request's, and the port has not closed"
    if case.foreign:
        assert all(answer.code != 200 for answer in found[: -1 if own else None]), "answered for a foreign name"
    return found


def _read_all(client: socket.socket) -> bytes:
    found = b""
    while piece := client.recv(65_536):
        found += piece
    return found


def answers_in(data: bytes) -> list[Answer]:
    found, at = [], 0
    while at < len(data):
        head = ANSWER.match(data, at)
        assert head is not None, f"no answer in HTTP/1.1: {data[at : at + 200]!r}"
        fields = dict(line.lower().split(b": ", 1) for line in head[2].rstrip(b"\r\n").split(b"\r\n"))
        assert {b"content-security-policy", b"x-content-type-options", b"cache-control"} <= fields.keys(), fields
        length = int(fields[b"content-length"])
        body = data[head.end() : head.end() + length]
        if not body or body.startswith(b"HTTP/1.1 "):  # the answer to HEAD
            length, body = 0, b""
        assert len(body) == length, "a body was cut off"
        found.append(Answer(int(head[1]), fields.get(b"connection") == b"close", body))
        at = head.end() + length
    return found


@contextlib.contextmanager
def port_for_fuzzing() -> Iterator[tuple[Port, list[str]]]:
    """A port that answers as fast as it can and waits for a slow fuzzer, and what was raised in it."""
    raised: list[str] = []
    stage = Stage()
    stage.tick()
    port = Port(listening("127.0.0.1", 0), routes_of(stage.watch, 1e9))
    port._loop.call_exception_handler = lambda context: raised.append(str(context))  # type: ignore[method-assign]
    rate, server.REQUESTS_PER_S = server.REQUESTS_PER_S, 1e9
    linger_s, server.LINGER_S = server.LINGER_S, ANSWERS_WITHIN_S
    port.start()
    try:
        yield port, raised
    finally:
        port.close()
        server.REQUESTS_PER_S, server.LINGER_S = rate, linger_s


def fuzz(seed: int, cases: range, stop: Callable[[], bool] = lambda: False) -> tuple[Counter[int], list[str]]:
    """How often each code was answered, and the cases that broke a law."""
    codes: Counter[int] = Counter()
    broken: list[str] = []
    with port_for_fuzzing() as (port, raised):
        host, _, number = port.address.removeprefix("http://").rstrip("/").rpartition(":")
        for place in cases:
            case = case_of(seed, place)
            try:
                codes.update(answer.code for answer in exchange((host, int(number)), case))
            except (AssertionError, OSError) as error:
                broken.append(f"seed {seed}, case {place}: {error}: {case.data[:2_000]!r}")
            broken += [f"seed {seed}, case {place}: raised {one}" for one in raised]
            raised.clear()
            if stop():
                break
        deadline = time.monotonic() + ANSWERS_WITHIN_S
        while port.connections and time.monotonic() < deadline:
            time.sleep(0.01)
        if port.connections:
            broken.append(f"{port.connections} connections are still open")
    return codes, broken


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.port", description="Fuzzes the HTTP port.")
    parser.add_argument("--requests", type=int, default=20_000, help="How many connections.")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began_s = time.monotonic()
    codes, broken = fuzz(given.seed, range(given.requests))
    answered = ", ".join(f"{code}: {codes[code]:,}" for code in sorted(codes))
    print(
        f"{given.requests:,} connections, {codes.total():,} answers in {time.monotonic() - began_s:.0f} s ({answered})"
    )
    print("\n".join(broken[:20]) or "no law was broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
