"""Makes docs/images/demo.svg, the demo as a terminal shows it, and docs/images/demo-picture.svg, the picture it draws.

python -m tests.unit.demo.capture
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.terminal_theme import MONOKAI

from sfd_stream.cli import main
from sfd_stream.demo import view

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGES = Path(__file__).parents[3] / "docs" / "images"
FOREIGN_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
WIDTH = 108


class Still(view.DemoOutput):
    """All but the live table, which does not keep still; as if called from the folder of a clone."""

    def __init__(self, console: Console, folder: str) -> None:
        super().__init__(console)
        self.folder = folder

    def sentence(self, text: str) -> None:
        super().sentence(text.replace(self.folder, "~/sfd-stream"))

    @contextlib.contextmanager
    def watching(self, _look: Any) -> Iterator[None]:
        yield


def main_() -> None:
    console = Console(record=True, force_terminal=True, width=WIDTH, file=io.StringIO())
    with tempfile.TemporaryDirectory() as folder:
        view.DemoOutput = lambda: Still(console, folder)  # type: ignore[misc, assignment]
        picture = Path(folder, "sfd-demo.svg")
        code = main(["demo", "--picture", str(picture)])
        assert code == 0, console.export_text()
        IMAGES.joinpath("demo-picture.svg").write_text(picture.read_text())
    svg = console.export_svg(title="make demo", theme=MONOKAI, unique_id="demo")
    # In the reader's own font: nothing is fetched.
    own = FOREIGN_FONT.sub("", svg).replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")
    IMAGES.joinpath("demo.svg").write_text(own)


if __name__ == "__main__":
    main_()
