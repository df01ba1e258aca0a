"""Examples in docstrings become code on the API page (mkdocs.yml): a run of lines from `>>>` to an empty line."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^[ ]*>>> .*?(?=\n[ ]*\n|\Z)", re.DOTALL | re.MULTILINE)


def fenced(docstring: str) -> str:
    return EXAMPLE.sub(lambda example: f"```pycon\n{example[0].rstrip()}\n```", docstring)


class DocstringExamples(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
