"""Plays a page as its reader would: every block in order, in one folder, beside a broker of its own.

`localhost:9092` is that broker. The folder has the repository's `config/`, set to that broker and to checkpoints in the
folder. Python blocks of a page share their names. Commands run as typed; `sfd-stream` runs in this process, which is
quicker, unless the line is more than one command. A block with a here-document goes to the shell whole.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from sfd_stream import SnapshotReader
from sfd_stream.cli import main
from sfd_stream.kafka.mock_broker import EmbeddedBroker
from tests.docs.pages import ROOT, Block, blocks
from tests.support.signals import signals_untouched

BROKER = "localhost:9092"
CHECKPOINTS = "file:///tmp/sfd-stream/checkpoints"
ENDS = {"run": "--until-end", "score": "--until-end", "merge": "--once", "watch": "--changes"}
"""Commands that run for ever, and the flag that gives them an end."""
PATIENCE_S = 120.0


class Stage:
    """A folder and a broker, and the names that a page's Python has made so far."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self.names: dict[str, Any] = {"__name__": "__main__"}
        for source in (ROOT / "config").glob("*.yaml"):
            target = folder / "config" / source.name
            target.parent.mkdir(exist_ok=True)
            text = source.read_text(encoding="utf-8").replace(CHECKPOINTS, (folder / "checkpoints").as_uri())
            target.write_text(self.adapted(text), encoding="utf-8")
        if (ROOT / "docs" / "examples").exists():
            shutil.copytree(ROOT / "docs" / "examples", folder / "docs" / "examples")

    def adapted(self, text: str) -> str:
        return text.replace(BROKER, self.bootstrap)

    def play(self, block: Block) -> str:
        """What the block printed on standard output."""
        code = self.adapted(block.code)
        if block.kind == "sh" and "<<" in code:
            return self.shell(code, block)
        if block.kind != "python":
            return "".join(self.command(line, block) for line in typed(code, block.kind))
        with contextlib.redirect_stdout(io.StringIO()) as out, signals_untouched():
            exec(compile(code, block.place, "exec"), self.names)  # noqa: S102 - our own page
        return out.getvalue()

    def command(self, line: str, block: Block) -> str:
        words = shlex.split(os.path.expandvars(line), comments=True)
        if words[:1] != ["sfd-stream"] or re.search(r"[|<>;&`]|\$\(", line):
            return self.shell(line, block)
        assert ENDS.get(words[1], words[1]) in words, f"{block.place}: {line} runs for ever: say why it is not run"
        with contextlib.redirect_stdout(io.StringIO()) as out, signals_untouched():
            code = main(words[1:])
        assert code == 0, f"{block.place}: {line}: exit code {code}"
        return out.getvalue()

    def shell(self, line: str, block: Block) -> str:
        with started(["bash", "-euc", line]) as process:
            out, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, f"{block.place}: {line}: exit code {process.returncode}\n{errors}"
        return out


@contextlib.contextmanager
def started(words: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process in a group of its own, so that its children go with it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    pipe, environment = subprocess.PIPE, {**os.environ, "PATH": path}
    process = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def typed(code: str, kind: str) -> list[str]:
    """The commands of a block, without prompts, empty lines and comments; a backslash joins lines."""
    lines = [line.strip() for line in code.replace("\\\n", " ").splitlines()]
    if kind == "console":
        assert all(line.startswith("$ ") for line in lines if line), "its output belongs into a block of its own"
        lines = [line.removeprefix("$ ") for line in lines]
    return [line for line in lines if line and not line.startswith("#")]


@contextlib.contextmanager
def _clean_environment(folder: Path) -> Iterator[None]:
    """No setting from outside; a free port, as others may test on this machine; no BLAS threads that compete.

    The built-in broker lets a group's member in again only after the session of the one before.
    """
    before = dict(os.environ)
    for name in [name for name in before if name.startswith("SFD_")]:
        del os.environ[name]
    os.environ.update(PWD=str(folder), SFD_HTTP__PORT="0", SFD_KAFKA__SESSION_TIMEOUT_MS="6000")
    try:
        with threadpool_limits(1):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def play(page: Path, folder: Path) -> list[tuple[Block, str]]:
    """Every block of the page that runs, with what it printed."""
    running = sorted((block for block in blocks(page) if block.runs), key=lambda block: block.runs_last)
    return play_blocks(running, folder, Stage) if running else []


def play_blocks(running: list[Block], folder: Path, make: Callable[[Path, str], Stage]) -> list[tuple[Block, str]]:
    """In this order, on one stage."""
    with EmbeddedBroker() as broker, _clean_environment(folder), contextlib.chdir(folder):
        stage = make(folder, broker.bootstrap)
        try:
            return [(block, stage.play(block)) for block in running]
        finally:
            for made in stage.names.values():
                if isinstance(made, SnapshotReader):
                    made.close()
            stage.names.clear()  # all clients go before the broker that they are connected to
