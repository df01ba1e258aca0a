"""Makes text from outside safe for a terminal: names of columns, keys and topics, messages of brokers and stores."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""The text on one line. Each character that a terminal would interpret or hide is escaped.

    >>> printable("a\x1b[31m\n")
    'a\\x1b[31m\\n'
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )


def printable_lines(text: str) -> str:
    """The same as `printable`, for a text of several lines."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))
