"""`sfd-stream health` against a port that answers as a worker's does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sfd_stream.cli import main
from sfd_stream.cli.commands.health import _address
from tests.support.kafka import free_ports


class Worker(BaseHTTPRequestHandler):
    """Alive, not ready."""

    ready = False

    def do_GET(self) -> None:
        well = self.ready or self.path == "/healthz"
        self.send_response(200 if well else 503)
        self.end_headers()
        self.wfile.write(b"turning" if well else b"restoring 2 partitions")

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Worker) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("host", "address"),
    [("0.0.0.0", "127.0.0.1:8080"), ("::", "[::1]:8080"), ("sketch-sfd-stream", "sketch-sfd-stream:8080")],  # noqa: S104 - where a worker listens
)
def test_a_worker_that_listens_everywhere_is_asked_on_loopback(host: str, address: str) -> None:
    assert _address(None, [f"http.host={host}", "http.port=8080"]) == address


def test_a_turning_worker_is_well(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--set", f"http.port={port}", "--set", "http.host=0.0.0.0"]) == 0
    assert capsys.readouterr().out.strip() == "turning"


def test_a_worker_that_is_not_well_says_why(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--ready", "--set", f"http.port={port}"]) == 1
    assert capsys.readouterr().out.strip().endswith("/readyz answered 503: restoring 2 partitions")


def test_json_says_the_same(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--set", f"http.port={port}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"well": True, "says": "turning"}
    assert main(["health", "--ready", "--set", f"http.port={port}", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["well"] is False


def test_it_asks_again_until_the_worker_is_ready(
    port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As long as it was told to wait, and no longer."""
    naps: list[float] = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 2:
            monkeypatch.setattr(Worker, "ready", True)

    monkeypatch.setattr("sfd_stream.cli.commands.health.time.sleep", sleep)
    assert main(["health", "--ready", "--wait-s", "60", "--set", f"http.port={port}"]) == 0
    assert len(naps) == 2
    assert capsys.readouterr().out == "turning\n"


def test_nobody_there_is_not_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--set", f"http.port={free_ports(1)[0]}"]) == 1
    assert "does not answer" in capsys.readouterr().out


def test_the_port_comes_from_the_environment_and_no_proxy_is_asked(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFD_HTTP__PORT", str(port))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert main(["health"]) == 0


def test_a_wrong_port_is_a_wrong_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--set", "http.port=many"]) == 2
    assert "http.port" in capsys.readouterr().err
