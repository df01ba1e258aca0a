"""What a run says about itself while it runs."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sfd_stream.cli import progress as progress_module
from tests.system.checkpoints.conftest import Site, messages

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka import Broker


@pytest.fixture
def live(tmp_path: Path, kafka: Broker) -> Site:
    site = Site(tmp_path, topic=kafka.create_topic(partitions=2), bootstrap=kafka.bootstrap)
    site.write()
    for partition in range(2):
        kafka.produce(site.topic, messages(0, 50), partition=partition)
    return site


def on_a_terminal(site: Site, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output (a pipe) and what a terminal of 100 columns showed of standard error."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "sfd_stream.cli", "run", "--config", str(site.file), *arguments]
    environment = os.environ | {"COLUMNS": "100", "TERM": "xterm"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while process.poll() is None or select.select([ours], [], [], 0)[0]:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                shown += os.read(ours, 65_536)
            except OSError:  # the terminal's other end is gone
                break
    assert process.stdout is not None
    out = process.stdout.read().decode()
    process.stdout.close()
    os.close(ours)
    return process.wait(60), out, shown.decode(errors="replace")


@pytest.mark.slow
def test_a_backfill_on_a_terminal_has_a_bar_and_clean_output(live: Site) -> None:
    code, out, shown = on_a_terminal(live, "--until-end", "--json")
    assert code == 0, shown
    assert json.loads(out)["total"]["rows"] == 100
    assert "100 rows" in shown
    assert "%" in shown
    assert "restored" in shown, "log lines go above the bar"


@pytest.mark.parametrize("every_s", [0.5, 3600.0])
def test_without_a_terminal_there_are_lines_and_no_bar_and_the_last_has_all(
    live: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, every_s: float
) -> None:
    monkeypatch.setattr(progress_module, "LINE_EVERY_S", every_s)
    live.write(log={"format": "json"})
    assert live.run("run", "--until-end", "--json") == 0
    told = capsys.readouterr()
    lines = [json.loads(line) for line in told.err.splitlines()]
    told_of = [line for line in lines if line["event"] == "progress"]
    assert told_of[-1]["rows"] == 100
    assert all({"rows", "rows_per_s", "bad", "checkpoints"} <= line.keys() for line in told_of)
    assert json.loads(told.out)["total"]["rows"] == 100
