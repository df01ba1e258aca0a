"""Terminal captures of the first ten minutes, pasted where a newcomer looks for them.

    python -m tests.docs.capture demo     README.md: `make demo`, here
    python -m tests.docs.capture clone    docs/getting-started/first-run.md: a clone, `make demo`, `make test`

What is cloned is what is committed. A quarter of an hour is needed for the second; a long output loses its middle,
and says so.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.operations import put
from tests.docs.pages import ROOT

HEAD, TAIL = 30, 32
"""This many lines of a long output are kept."""


def terminal(command: str, folder: Path, shown: str = "") -> str:
    """The command as typed in the folder, and what it printed."""
    done = subprocess.run(
        ["bash", "-c", f"TIMEFORMAT='took %lR'; {command}"],
        cwd=folder,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{command}: exit code {done.returncode}\n{done.stdout}")
    return f"$ {shown or command}\n{tidy(done.stdout, folder)}".rstrip()


def _environment() -> dict[str, str]:
    """As in a fresh shell: no setting, no virtual environment of ours."""
    ours = ("SFD_", "VIRTUAL_ENV", "PYTEST", "MAKE", "MFLAGS")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def tidy(text: str, folder: Path) -> str:
    """Without colours, the names of this machine's folders, and the middle of what is long."""
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).replace("\r\n", "\n").replace(f"{folder}/", "")
    plain = plain.replace(str(folder), ".").replace(tempfile.gettempdir() + os.sep, "$TMPDIR/")
    plain = plain.replace(str(Path.home()) + os.sep, "~/")
    lines = [line.split("\r")[-1].rstrip() for line in plain.splitlines()]
    if len(lines) > HEAD + TAIL + 1:
        left_out = len(lines) - HEAD - TAIL
        lines = [*lines[:HEAD], f"[... {left_out:,} lines left out ...]", *lines[-TAIL:]]
    return "\n".join(lines)


DEMO_LINES = re.compile(
    r"kill -9 of|took over|All [\d,]+ rows are in|✓ (?:rows|certified|found)|, expected |^   [1-3]  █"
)
"""The lines of the demo that the README shows: the accident, the counts, the error, the topics, the planted rows."""


def demo() -> None:
    command, *lines = terminal("make --no-print-directory demo", ROOT, "make demo").splitlines()
    paste(ROOT / "README.md", "demo", "\n".join([command, "[...]", *filter(DEMO_LINES.search, lines)]))


def clone() -> None:
    with tempfile.TemporaryDirectory(prefix="sfd-first-run-") as name:
        empty = Path(name)
        seen = [
            terminal("ls -A | wc -l", empty),
            terminal("nproc; python3 --version", empty),
            terminal(f"git clone --quiet {ROOT} sfd-stream", empty, "git clone --quiet URL sfd-stream"),
        ]
        inside = empty / "sfd-stream"
        seen += [terminal(f"time make {target}", inside) for target in ("demo", "test")]
        paste(ROOT / "docs" / "getting-started" / "first-run.md", "clone", "\n".join(seen))


def paste(page: Path, name: str, text: str) -> None:
    page.write_text(put(page.read_text(encoding="utf-8"), name, text), encoding="utf-8")


CAPTURES: dict[str, Callable[[], None]] = {"demo": demo, "clone": clone}

if __name__ == "__main__":
    for name in sys.argv[1:] or CAPTURES:
        CAPTURES[name]()
