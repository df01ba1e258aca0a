"""The steps of the demo: it names the partitions and the command, and ends with the worker that dies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sfd_stream.demo import checks
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
