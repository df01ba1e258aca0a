"""Text from outside is escaped before it reaches a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sfd_stream.printable import printable, printable_lines

EVIL = "a\x1b]0;title\x07\x1b[31mb\nc\u202ed\x9be\x7f"
SAFE = r"a\x1b]0;title\x07\x1b[31mb\nc\u202ed\x9be\x7f"


def test_what_a_terminal_would_interpret_is_escaped() -> None:
    assert printable(EVIL) == SAFE
    assert printable("naïve 日本 🫖") == "naïve 日本 🫖"


def test_lines_stay_lines() -> None:
    assert printable_lines("a\x1b\nb\t") == "a\\x1b\nb\\t"


@given(st.text())
def test_a_printable_text_is_itself_and_any_other_has_its_escapes(text: str) -> None:
    assert printable(text).isprintable()
    assert (printable(text) == text) == text.isprintable()
    assert printable_lines(text).count("\n") == text.count("\n")
