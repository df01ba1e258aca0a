"""The errors that the environment can cause are one tree, as it is drawn in the module, with one exit code each."""

from __future__ import annotations

import inspect
import re

from sfd_stream import errors
from sfd_stream.errors import RowDecodeError, SettingsError, SfdError

LINE = re.compile(r"^ {4}([│├└─ ]*)(\w+Error)\b.*?(?:exit (\d))?$", re.MULTILINE)
DRAWN = [(len(depth) // 4, name, code) for depth, name, code in LINE.findall(errors.__doc__ or "")]


def test_the_drawn_tree_is_that_of_the_classes() -> None:
    above: dict[int, str] = {}
    for depth, name, _ in DRAWN:
        above[depth] = name
        if depth:
            assert getattr(errors, name).__bases__[0].__name__ == above[depth - 1]
    assert {name for _, name, _ in DRAWN} == {name for name, _ in inspect.getmembers(errors, inspect.isclass)}


def test_the_drawn_exit_codes_are_those_of_the_classes() -> None:
    drawn = {name: int(code) for _, name, code in DRAWN if code}
    assert set(drawn.values()) == {2, 3, 4, 5}
    assert drawn == {name: getattr(errors, name).exit_code for name in drawn}
    assert SfdError.exit_code == 1


def test_wrong_settings_are_named_together() -> None:
    assert (
        SettingsError("ell is wrong; d is wrong", problems=("ell is wrong", "d is wrong")).problems[1] == "d is wrong"
    )
    assert SettingsError("ell is wrong").problems == ("ell is wrong",)


def test_the_words_for_a_bad_message_hold_nothing_of_its_content() -> None:
    error = RowDecodeError("unknown key", reason="bad_keys", excerpt="'secret'")
    assert (error.words, error.reason, str(error)) == ("unknown key", "bad_keys", "unknown key 'secret'")
    assert RowDecodeError("no msgpack map").reason == "malformed"
