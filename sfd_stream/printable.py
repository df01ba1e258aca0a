"""Text from outside, made safe for a terminal: names of columns, keys, topics, and what brokers and stores answer."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""The text on one line, with the escape of each character that a terminal would act on or hide.

    >>> printable("a\x1b[31m\n")
    'a\\x1b[31m\\n'
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )


def printable_lines(text: str) -> str:
    """As `printable`, for a text of several lines."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))
