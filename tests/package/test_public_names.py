"""What a user can import from `sfd_stream`: every name works, and every error that can be met is one of them."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import sfd_stream
from sfd_stream import errors
from sfd_stream.sketch.estimator import NotFittedError
from tests.docs.pages import PAGES, ROOT, blocks

EXAMPLES = ROOT / "docs" / "examples"


def test_every_error_can_be_caught_by_a_name_of_the_package() -> None:
    of_ours = {name for name, found in vars(errors).items() if inspect.isclass(found)}
    assert of_ours <= set(sfd_stream.__all__)
    assert sfd_stream.FormatError is errors.FormatError
    assert sfd_stream.NotFittedError is NotFittedError


def test_every_name_is_the_one_that_type_checkers_see() -> None:
    source = ast.parse(Path(sfd_stream.__file__).read_text())
    seen = {
        alias.name: node.module
        for block in source.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(seen) == sorted(sfd_stream.__all__)
    for name, module in seen.items():
        assert getattr(sfd_stream, name) is getattr(import_module(str(module)), name)


def python_of_the_documents() -> Iterator[tuple[str, str]]:
    """Every piece of Python that a reader may copy: pages, example programs, notebooks, docstrings."""
    for page in PAGES:
        yield from ((block.place, block.code) for block in blocks(page) if block.kind == "python")
    for path in EXAMPLES.rglob("*.py"):
        yield path.name, path.read_text()
    for path in EXAMPLES.rglob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        yield path.name, "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    for name in sfd_stream.__all__:
        yield name, "\n".join(re.findall(r">>> (.*)", inspect.getsource(getattr(sfd_stream, name))))


def test_no_document_imports_from_an_inner_module() -> None:
    inner = [
        (place, line)
        for place, code in python_of_the_documents()
        for line in re.findall(r"^\s*(?:from|import) sfd_stream\.\S*.*$", code, re.MULTILINE)
    ]
    assert inner == []


def test_every_name_that_a_document_imports_is_public() -> None:
    found = {
        name.strip()
        for _, code in python_of_the_documents()
        for names in re.findall(r"from sfd_stream import (\([^)]*\)|.*)", code)
        for name in re.sub(r"[()]|#.*", "", names).split(",")
        if name.strip()
    }
    assert {"HashedColumns", "SnapshotReader"} <= found
    assert found <= {*sfd_stream.__all__, "__version__"}


def test_the_api_page_has_every_public_name_once() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text()
    assert sorted(re.findall(r"^::: sfd_stream\.(\w+)$", page, re.MULTILINE)) == sorted(sfd_stream.__all__)
