"""The routes of a service: /metrics, /healthz, /readyz, /status.json and the page."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Protocol

from sfd_stream.observe.registry import CONTENT_TYPE
from sfd_stream.observe.server import Handler, Response, Route, Shared

SHARED_S = 0.5
"""Responses are cached for this time. The status itself is computed once a second."""


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


class WithPage(Serving, Protocol):
    """A service with a page of its own."""

    def status_json(self) -> bytes:
        """The data of the page."""


def routes_of(watch: WithPage, stuck_after_s: float, page: str = "index.html") -> Mapping[str, Route]:
    async def status() -> Response:
        return Response(200, "application/json", watch.status_json())

    return {
        "/": Route(page_of(page)),
        "/status.json": Route(Shared(status, SHARED_S)),
        **service_routes(watch, stuck_after_s),
    }


def service_routes(watch: Serving, stuck_after_s: float) -> Mapping[str, Route]:
    async def metrics() -> Response:
        return Response(200, CONTENT_TYPE, watch.exposition())

    async def health() -> Response:
        return health_of(watch.idle_s, stuck_after_s)

    async def ready() -> Response:
        return Response.text(200 if watch.ready else 503, watch.doing)

    return {
        "/metrics": Route(Shared(metrics, SHARED_S)),
        "/healthz": Route(health, paced=False),
        "/readyz": Route(ready, paced=False),
    }


def health_of(idle_s: float, stuck_after_s: float) -> Response:
    """Fails if the loop does not turn, but not if broker or store are unavailable: a restart would not help."""
    return Response.text(503, stuck_words(idle_s)) if idle_s > stuck_after_s else Response.text(200, "ok")


def stuck_words(idle_s: float) -> str:
    return f"the loop has not turned for {idle_s:.0f} s"


@cache
def page_of(name: str) -> Handler:
    """The page. Its policy allows only its own script and style, by their hashes."""
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
