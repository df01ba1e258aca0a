"""What a user can import from `sfd_stream`: every name works, and every error that can be met is one of them."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pathlib import Path

import sfd_stream
from sfd_stream import errors
from sfd_stream.sketch.estimator import NotFittedError


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
