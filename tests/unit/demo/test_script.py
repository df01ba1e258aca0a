"""The steps of the demo: it ends with a worker that dies, and the commands that it prints can be run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sfd_stream.demo import checks, script
from sfd_stream.demo.script import Story
from sfd_stream.demo.stage import DemoSetup, DemoWorker, Workers
from sfd_stream.demo.view import DemoOutput


def test_while_it_stays_a_worker_that_dies_ends_it(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"], stdin=subprocess.PIPE)
    process.wait()
    log = tmp_path / "worker-1.log"
    log.write_text('{"event": "no more room"}\n')
    ground = DemoSetup("b:1", "rows", "sketches", "g", "file:///x", given=False)
    teller, worker = DemoOutput(), DemoWorker(1, log, process)
    with Workers(tmp_path, tmp_path / "s.yaml", ground, all={1: worker}) as workers:
        workers.start = lambda _: worker  # type: ignore[method-assign]
        worker.page = lambda: "http://x/"  # type: ignore[method-assign]
        truth, feed = SimpleNamespace(messages=[b""]), SimpleNamespace(send=lambda *_: None)
        story = Story(ground, None, workers, teller, truth, feed, lambda: 0)  # type: ignore[arg-type]
        with pytest.raises(checks.DemoError, match=r"worker 1 ended with exit code 3 before Ctrl-C; .*: no more room"):
            story.stay()


@pytest.mark.parametrize(
    ("found", "started_as", "command"),
    [
        ("/usr/bin/sfd-stream", "/usr/bin/sfd-stream", "sfd-stream"),
        (None, "/venv/bin/sfd-stream", "/venv/bin/sfd-stream"),
        (None, "/venv/bin/pytest", "python -m sfd_stream.cli"),
    ],
)
def test_the_command_that_it_prints_can_be_run(
    found: str | None, started_as: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: found)
    monkeypatch.setattr(sys, "argv", [started_as])
    assert script.program() == command
