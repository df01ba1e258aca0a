"""The demo as a process of its own, with a place for temporary files that shows what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sfd_stream.demo import checks
from sfd_stream.sketch.estimator import SparseFrequentDirections
from sfd_stream.sketch.sketch import Sketch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

DEADLINE_S = 150.0
PROGRAM = (sys.executable, "-m", "sfd_stream.cli")


@dataclass
class Playing:
    """`sfd-stream demo` at work; `text` is what it has said so far."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def text(self) -> str:
        return (self.folder / "out").read_text()

    def await_(self, words: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while words not in self.text:
            assert self.process.poll() is None, f"it ended without {words!r}:\n{self.text}"
            assert time.monotonic() < deadline, f"no {words!r}:\n{self.text}"
            time.sleep(0.1)

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(DEADLINE_S)

    def left_behind(self) -> list[str]:
        """Temporary files, and processes told to put theirs into our place: the demo and what it started."""
        place = self.folder / "tmp"
        return [str(path) for path in place.iterdir()] + [
            process.name for process in Path("/proc").glob("[0-9]*") if f"TMPDIR={place}" in _environment(process)
        ]


def _environment(process: Path) -> list[str]:
    try:
        return (process / "environ").read_text(errors="replace").split("\0")
    except OSError:
        return []  # it ended while we looked


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[..., Playing]]:
    made: list[Playing] = []

    def start(*arguments: str, program: Sequence[str] = PROGRAM, **environ: str) -> Playing:
        (tmp_path / "tmp").mkdir()
        command = [*program, "demo", *arguments]
        with (tmp_path / "out").open("wb") as out:
            process = subprocess.Popen(
                command, cwd=tmp_path, stdout=out, stderr=out, start_new_session=True,
                env=os.environ | {"TMPDIR": str(tmp_path / "tmp"), **environ},
            )  # fmt: skip
        made.append(Playing(tmp_path, process))
        return made[-1]

    yield start
    for playing in made:
        playing.process.kill()
        playing.process.wait()


@pytest.fixture(scope="session")
def truth() -> checks.Truth:
    return checks.truth()


@pytest.fixture(scope="session")
def sketch(truth: checks.Truth) -> Sketch:
    return SparseFrequentDirections(ell=checks.ELL).partial_fit(truth.block.csr()).sketch()


@pytest.fixture(scope="session")
def strongest(truth: checks.Truth, sketch: Sketch) -> list[str]:
    return checks.directions(sketch, truth.rows_of(truth.kept)[1], 1, 9)[0]
