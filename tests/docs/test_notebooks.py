"""The notebooks of docs/examples run from top to bottom, and print and draw what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.notebooks import NOTEBOOKS, contents, pictures_of, play_notebook
from tests.docs.paste import same

PNG = b"\x89PNG"


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.name)
def test_every_cell_runs_and_shows_what_the_notebook_has(notebook: Path, tmp_path: Path) -> None:
    cells = contents(notebook)["cells"]
    for block, printed, figures in play_notebook(notebook, tmp_path):
        where = f"{notebook.name}, cell {block.line}"
        assert same(block, printed), f"{where} is stale: python -m tests.docs.notebooks; it printed\n{printed}"
        pasted = pictures_of(cells[block.line])
        assert len(figures) == len(pasted), f"{where}: python -m tests.docs.notebooks"
        assert all(picture.startswith(PNG) and len(picture) > 3_000 for picture in (*figures, *pasted))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.name)
def test_a_notebook_is_of_the_format_that_jupyter_reads(notebook: Path) -> None:
    whole = contents(notebook)
    assert (whole["nbformat"], whole["nbformat_minor"]) == (4, 5)
    assert whole["metadata"]["kernelspec"]["name"] == "python3"
    assert len({cell["id"] for cell in whole["cells"]}) == len(whole["cells"])
    for cell in whole["cells"]:
        assert {"id", "cell_type", "metadata", "source"} <= set(cell)
        assert cell["cell_type"] == "markdown" or {"outputs", "execution_count"} <= set(cell)


def test_there_is_one_from_a_topic_to_a_projection() -> None:
    (notebook,) = NOTEBOOKS
    source = "".join(line for cell in contents(notebook)["cells"] for line in cell["source"])
    assert all(word in source for word in ("sfd-stream produce", "sfd-stream run", ".top(", "plt.", ".project("))
