"""What the port answers for one worker: /metrics, /healthz, /readyz, /status.json and the page."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Protocol

from sfd_stream.observe.registry import CONTENT_TYPE, exposition, resident_bytes
from sfd_stream.observe.server import Handler, Response, Route, Shared
from sfd_stream.observe.status import as_json
from sfd_stream.observe.worker_status import Watch

SHARED_S = 0.5
"""Answers this old are good enough: the status itself is made once a second."""


def routes_of(watch: Watch, stuck_after_s: float) -> Mapping[str, Route]:
    async def metrics() -> Response:
        return Response(200, CONTENT_TYPE, exposition(watch.meter, watch.status, watch.idle_s))

    async def status() -> Response:
        body = as_json([watch.status], [watch.idle_s], resident_bytes())
        return Response(200, "application/json", body)

    async def health() -> Response:
        return health_of(watch.idle_s, stuck_after_s)

    async def ready() -> Response:
        return ready_of(ready=watch.status.ready, doing=watch.status.doing)

    return {
        "/": Route(page_of("index.html")),
        "/metrics": Route(Shared(metrics, SHARED_S)),
        "/status.json": Route(Shared(status, SHARED_S)),
        "/healthz": Route(health, paced=False),
        "/readyz": Route(ready, paced=False),
    }


class Serving(Protocol):
    """A service without a page."""

    @property
    def idle_s(self) -> float:
        """Time since its loop last turned."""

    @property
    def ready(self) -> bool: ...
    @property
    def doing(self) -> str: ...
    def exposition(self) -> bytes:
        """Its metrics."""


def service_routes(watch: Serving, stuck_after_s: float) -> Mapping[str, Route]:
    async def metrics() -> Response:
        return Response(200, CONTENT_TYPE, watch.exposition())

    async def health() -> Response:
        return health_of(watch.idle_s, stuck_after_s)

    async def ready() -> Response:
        return ready_of(ready=watch.ready, doing=watch.doing)

    return {
        "/metrics": Route(Shared(metrics, SHARED_S)),
        "/healthz": Route(health, paced=False),
        "/readyz": Route(ready, paced=False),
    }


class WithPage(Serving, Protocol):
    """A service with a page of its own."""

    def status_json(self) -> bytes:
        """What the page shows."""


def score_routes(watch: WithPage, stuck_after_s: float) -> Mapping[str, Route]:
    async def status() -> Response:
        return Response(200, "application/json", watch.status_json())

    return {
        "/": Route(page_of("score.html")),
        "/status.json": Route(Shared(status, SHARED_S)),
        **service_routes(watch, stuck_after_s),
    }


def health_of(idle_s: float, stuck_after_s: float) -> Response:
    """Fails if the loop does not turn. An unavailable broker or store is no failure: a restart would not help."""
    return Response.text(503, stuck_words(idle_s)) if idle_s > stuck_after_s else Response.text(200, "ok")


def stuck_words(idle_s: float) -> str:
    return f"the loop has not turned for {idle_s:.0f} s"


def ready_of(*, ready: bool, doing: str) -> Response:
    return Response.text(200 if ready else 503, doing)


@cache
def page_of(name: str) -> Handler:
    """A page allows its own script and style, by their hashes, and nothing else."""
    text = (files("sfd_stream.observe") / "page" / name).read_text("utf-8")
    policy = (
        f"default-src 'none'; script-src {_hashes(text, 'script')}; style-src {_hashes(text, 'style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    response = Response(200, "text/html; charset=utf-8", text.encode(), policy)

    async def page() -> Response:
        return response

    return page


def _hashes(text: str, tag: str) -> str:
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    digests = (hashlib.sha256(part.encode()).digest() for part in found)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
