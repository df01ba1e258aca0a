"""docs/reading.md: every block runs, in order, on a broker, and prints what the page says.

`python -m tests.test_reading_page --update` writes outputs and pictures anew.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfd_stream.cli import main
from sfd_stream.kafka.embedded import EmbeddedBroker
from tests.parts.signals import signals_untouched

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[1] / "docs" / "reading.md"
BLOCK = re.compile(
    r"^```(?P<kind>python|sh)\n(?P<code>.*?)^```\n(?:<!-- output -->\n```\n(?P<output>.*?)```\n)?",
    re.DOTALL | re.MULTILINE,
)
PICTURES = re.findall(r"!\[.*?\]\(pictures/(.*?)\)", PAGE.read_text())


def play(bootstrap: str, folder: Path) -> list[tuple[re.Match[str], str]]:
    """Runs the page in `folder`; gives each Python block with what it printed."""
    space: dict[str, Any] = {}
    played = []
    for block in BLOCK.finditer(PAGE.read_text()):
        code = block["code"].replace("localhost:9092", bootstrap).replace("HERE", str(folder))
        out = io.StringIO()
        with contextlib.redirect_stdout(out), signals_untouched():
            if block["kind"] == "python":
                exec(compile(code, "reading.md", "exec"), space)  # noqa: S102 - our own page
            else:
                for line in code.splitlines():
                    program, *arguments = shlex.split(line)
                    assert program == "sfd-stream"
                    assert main(arguments) == 0, line
        if block["kind"] == "python":
            played.append((block, out.getvalue()))
    space["reader"].close()
    return played


def test_every_block_runs_and_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SFD_")]:
        monkeypatch.delenv(name)
    with EmbeddedBroker() as broker:  # of its own: the one that tests share has all their topics by now
        played = list(play(broker.bootstrap, tmp_path))
    for block, printed in played:
        assert printed == (block["output"] or ""), block["code"]
    for picture in PICTURES:
        assert (tmp_path / picture).stat().st_size > 5_000
        assert (PAGE.parent / "pictures" / picture).exists()


def update() -> None:
    with EmbeddedBroker() as broker, tempfile.TemporaryDirectory() as name:
        folder, text = Path(name), PAGE.read_text()
        os.chdir(folder)
        for block, printed in play(broker.bootstrap, folder):
            if block["output"] is not None:
                old = block[0]
                text = text.replace(old, old.replace(f"```\n{block['output']}```\n", f"```\n{printed}```\n"))
        PAGE.write_text(text)
        for picture in PICTURES:
            shutil.copy(folder / picture, PAGE.parent / "pictures" / picture)


if __name__ == "__main__" and "--update" in sys.argv:
    update()
