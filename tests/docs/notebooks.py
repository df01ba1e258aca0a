"""Notebooks of docs/examples, played as a reader would: every cell in order, beside a broker of its own.

`python -m tests.docs.notebooks` writes what the cells printed and drew into them. A line that begins with ! is a
command, as in Jupyter. A figure that is open at the end of a cell is the cell's picture.
"""

from __future__ import annotations

import base64
import io
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.docs.pages import ROOT, Block
from tests.docs.paste import clean
from tests.docs.playing import Stage, play_blocks

NOTEBOOKS = sorted((ROOT / "docs" / "examples").glob("*.ipynb"))


def contents(notebook: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(notebook.read_text(encoding="utf-8"))
    return found


def blocks_of(notebook: Path) -> list[Block]:
    """Each cell of code, as a page's block; its line is the cell's number. Numbers in a command's output may differ."""
    made = []
    for number, cell in enumerate(contents(notebook)["cells"]):
        if cell["cell_type"] == "code":
            lines = [line.rstrip("\n") for line in cell["source"]]
            commands = [line.startswith("!") for line in lines]
            assert all(commands) or not any(commands), "commands have a cell of their own"
            code = "".join(f"{line.removeprefix('!')}\n" for line in lines)
            kind = "sh" if all(commands) else "python"
            made.append(Block(notebook, number, kind, code, "", printed_by(cell), kind == "sh", (0, 0)))
    return made


def printed_by(cell: dict[str, Any]) -> str:
    texts = [line for output in cell["outputs"] if output["output_type"] == "stream" for line in output["text"]]
    return "".join(texts)


def pictures_of(cell: dict[str, Any]) -> list[bytes]:
    found = [output["data"]["image/png"] for output in cell["outputs"] if output["output_type"] == "display_data"]
    return [base64.b64decode(picture) for picture in found]


def play_notebook(notebook: Path, folder: Path) -> list[tuple[Block, str, list[bytes]]]:
    """Every cell of code, with what it printed and drew."""
    import matplotlib as mpl

    drawn: list[list[bytes]] = []
    mpl.use("agg")

    class Cells(Stage):
        def play(self, block: Block) -> str:
            printed = super().play(block)
            drawn.append(_figures())
            return printed

    make: Callable[[Path, str], Stage] = Cells
    played = play_blocks(blocks_of(notebook), folder, make)
    return [(block, printed, figures) for (block, printed), figures in zip(played, drawn, strict=True)]


def _figures() -> list[bytes]:
    from matplotlib import pyplot as plt

    found = []
    for number in plt.get_fignums():
        with io.BytesIO() as file:
            plt.figure(number).savefig(file, format="png", dpi=60, metadata={"Software": None})
            found.append(file.getvalue())
    plt.close("all")
    return found


def paste(notebook: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="sfd-docs-") as name:
        played = play_notebook(notebook, Path(name))
    whole = contents(notebook)
    for count, (block, printed, figures) in enumerate(played, start=1):
        text = {"output_type": "stream", "name": "stdout", "text": clean(printed).splitlines(keepends=True)}
        pictures = [{"image/png": base64.b64encode(figure).decode(), "text/plain": ["<Figure>"]} for figure in figures]
        drawn = [{"output_type": "display_data", "data": picture, "metadata": {}} for picture in pictures]
        cell = whole["cells"][block.line]
        cell["execution_count"], cell["outputs"] = count, [*([text] if clean(printed) else []), *drawn]
    notebook.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for each in NOTEBOOKS:
        sys.stdout.write(f"{each.name}\n")
        paste(each)
