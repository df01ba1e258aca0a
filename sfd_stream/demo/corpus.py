"""The demo's text: the docstrings of Python's standard library, as bags of words."""

from __future__ import annotations

import re
import sysconfig
from collections import Counter
from pathlib import Path

import numpy as np

from sfd_stream.wire.hashing import signed_columns

# After a colon at a line's end: elsewhere, a pair of triple quotes may as well hold the code between two docstrings.
_DOCSTRING = re.compile(r':\n\s+[rR]?"""((?:(?!""").){80,4000})"""', re.DOTALL)
_WORD = re.compile(r"[a-z]{3,}")
_ELSEWHERE = {"site-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "__pycache__"}
_STOP_WORDS = frozenset(
    """
    the and for this that with are not from will all which can used when use may one any should only has but must have
    its then using than also into see other they there been was were these such each does more you your our after
    before whether would could same some being return returns returned given value name method function argument
    arguments default optional instance object class none true false called call new get set self
    about above according actual actually add added additional adds against allow allowed allows another anything
    appropriate associated automatically back based because change changed common considered contain contains
    corresponding created creates creating currently depending depends details determine determined different directly
    doesn don done during else ensure entire equivalent etc even every exactly existing expected extra full handle
    handling helper here how however implement implemented implements include included includes including indicates
    indicating instances intended isn itself least less long made make makes many means multiple necessary need needed
    never normal normally nothing old omitted once original out over own part particular per place point possibly
    present provide provided provides rather real recent representing represents required result resulting results
    right second several similar simple since specified specifies specify specifying suitable supplied support
    supported supports take taken takes them those though through try typically under underlying unless useful uses
    usually via want way well what while whose within without
    """.split()  # noqa: SIM905 - a table of words reads better than 230 quoted ones
)


_RARE, _COMMON = 10, 0.02
"""A word is kept if at least this many docstrings have it, and at most this share of them."""

_WORDS_MIN = 5


def documents() -> list[str]:
    """The docstrings, each once, in an order that depends on the library only."""
    library = Path(sysconfig.get_paths()["stdlib"])
    files = (path for path in sorted(library.rglob("*.py")) if not _ELSEWHERE & set(path.relative_to(library).parts))
    texts = (path.read_text(encoding="utf-8", errors="ignore") for path in files)
    return list(dict.fromkeys(found for text in texts for found in _DOCSTRING.findall(text)))


def bags(columns: int, seed: int = 0, prefix: str = "") -> list[dict[str, int]]:
    """One bag of words per docstring, each word counted once, without rare and common words.

    If hashing would put several words into one of the `columns`, the most common one is kept, so that each column has
    one name. A feature's name is the prefix and the word.
    """
    words = [set(_WORD.findall(text.lower())) - _STOP_WORDS for text in documents()]
    found = Counter(sorted(word for bag in words for word in bag))
    known = [word for word, count in found.most_common() if _RARE <= count <= _COMMON * len(words)]
    places = signed_columns([prefix + word for word in known], columns, seed)[0]
    kept = {known[first] for first in np.unique(places, return_index=True)[1]}
    return [dict.fromkeys(sorted(bag & kept), 1) for bag in words if len(bag & kept) >= _WORDS_MIN]
