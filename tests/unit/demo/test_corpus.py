"""The demo's text: the docstrings of a library, each once, as bags of the words that tell them apart."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from sfd_stream.demo import corpus

WORDS = ("river", "bridge", "harbour", "valley", "meadow", "summit")
TEXT = f"Returns the {' and the '.join(WORDS)} of every map that was ever drawn here by hand."


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for the standard library. It is empty."""
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    return tmp_path


def write(file: Path, *docstrings: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    functions = (f'def f{number}():\n    """{text}"""\n' for number, text in enumerate(docstrings))
    file.write_text("\n".join(functions))


def test_each_docstring_counts_once_and_tests_do_not(library: Path) -> None:
    write(library / "maps.py", TEXT, "Too short to be a row.")
    write(library / "copies.py", TEXT)
    write(library / "test" / "test_maps.py", TEXT.replace("river", "testing"))
    assert corpus.documents() == [TEXT]


def test_a_bag_has_neither_rare_nor_common_nor_stop_words(library: Path) -> None:
    def text(number: int) -> str:
        own = f"{' '.join(WORDS)}, the default value" if number < 12 else "others"
        return f"Common {own} {'rare' if number < 9 else 'no'} {number} {'x' * 80}."

    write(library / "maps.py", *map(text, range(1_000)))
    assert corpus.bags(columns=2**20) == [dict.fromkeys(sorted(WORDS), 1)] * 12


def test_two_words_of_one_column_are_not_both_kept(library: Path) -> None:
    write(library / "maps.py", *(f"{' '.join(WORDS)}: {number} {'y' * 80}" for number in range(12)))
    write(library / "rest.py", *(f"{'z' * 80} {number}" for number in range(1_000)))
    assert corpus.bags(columns=1) == [], "one column has one name, and one word is not enough for a row"
