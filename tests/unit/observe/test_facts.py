"""The fields and sentences of a worker's status: the most urgent condition is the one in words."""

from __future__ import annotations

from sfd_stream.observe.facts import preview


def test_a_preview_is_printable_and_short() -> None:
    assert preview(b"\x1b[31mred\n") == "\\x1b[31mred\\x0a"
    assert preview(b"a" * 100) == "a" * 48 + "…"
