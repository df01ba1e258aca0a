"""Real text that every machine with Python has: the docstrings of its standard library, as bags of words."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

# After a colon at a line's end: elsewhere, a pair of triple quotes may as well hold the code between two docstrings.
_DOCSTRING = re.compile(r':\n\s+[rR]?"""((?:(?!""").){80,4000})"""', re.DOTALL)
_WORD = re.compile(r"[a-z]{3,}")
_ELSEWHERE = {"site-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "__pycache__"}
_STOP_WORDS = frozenset(
    [
        "the",
        "and",
        "for",
        "this",
        "that",
        "with",
        "are",
        "not",
        "from",
        "will",
        "all",
        "which",
        "can",
        "used",
        "when",
        "use",
        "may",
        "one",
        "any",
        "should",
        "only",
        "has",
        "but",
        "must",
        "have",
        "its",
        "then",
        "using",
        "than",
        "also",
        "into",
        "see",
        "other",
        "they",
        "there",
        "been",
        "was",
        "were",
        "these",
        "such",
        "each",
        "does",
        "more",
        "you",
        "your",
        "our",
        "after",
        "before",
        "whether",
        "would",
        "could",
        "same",
        "some",
        "being",
        "return",
        "returns",
        "returned",
        "given",
        "value",
        "name",
        "method",
        "function",
        "argument",
        "arguments",
        "default",
        "optional",
        "instance",
        "object",
        "class",
        "none",
        "true",
        "false",
        "called",
        "call",
        "new",
        "get",
        "set",
        "self",
    ]
)


def documents() -> Iterator[str]:
    """One docstring after the other, in an order that is the same everywhere the library is."""
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(library.rglob("*.py")):
        if not _ELSEWHERE & set(path.relative_to(library).parts):
            yield from _DOCSTRING.findall(path.read_text(encoding="utf-8", errors="ignore"))


def bags() -> list[dict[str, int]]:
    """A bag of words a docstring: each word once, the commonest of all left out."""
    words = (dict.fromkeys(_WORD.findall(text.lower()), 1) for text in documents())
    kept = ({word: 1 for word in bag if word not in _STOP_WORDS} for bag in words)
    return [bag for bag in kept if len(bag) >= 5]
