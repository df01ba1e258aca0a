"""`sfd-stream checkpoint rollback|reset|prune`: each says what will happen, and asks.

What the commands do to a real store is tested in tests/system/checkpoints.
"""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest

from sfd_stream.cli.commands.checkpoint_repair import _confirm, _from, _reset_words
from sfd_stream.errors import SettingsError
from sfd_stream.state.repair import ResetPoint
from sfd_stream.state.steps import Refused
from sfd_stream.tools.inspect import Place, Standing
from tests.unit.state.chains import BINDING, genesis

PLACE = Place("g", "rows", 3)
NEWEST = replace(genesis(), number=7, next_offset=100)
STANDING = Standing((6, 7), NEWEST)


def words(offset: int, *, standing: Standing = STANDING, keep_sketch: bool = True) -> str:
    return _reset_words(PLACE, standing, ResetPoint(BINDING, offset, None, {}, None), keep_sketch=keep_sketch)


@pytest.mark.parametrize(
    ("offset", "consequence"),
    [
        (130, "instead of 100: the 30 offsets in between are never counted."),
        (60, "instead of 100: up to 40 records in between are COUNTED TWICE."),
        (100, "instead of the same offset."),
    ],
)
def test_a_sketch_that_is_kept_at_another_offset_misses_rows_or_counts_them_twice(
    offset: int, consequence: str
) -> None:
    assert words(offset).endswith(consequence)


def test_a_new_start_says_how_to_undo_it() -> None:
    assert '"sfd-stream checkpoint rollback rows/3 --to 7" undoes this' in words(0, keep_sketch=False)


def test_where_nothing_is_readable_there_is_nothing_to_keep() -> None:
    unreadable = Standing((7,), Refused("bad checksum", "roll back"))
    assert words(0, standing=unreadable).endswith("with an empty sketch (its checkpoint 7 is unreadable).")
    assert words(0, standing=Standing((), None)).endswith("with an empty sketch (there is no checkpoint yet).")
    assert _from(unreadable) == "from checkpoint 7, which can't be used, "


def test_without_a_terminal_nothing_is_changed_unless_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    _confirm("rows/3 goes back.", yes=True)
    with pytest.raises(SettingsError, match="nothing was changed"):
        _confirm("rows/3 goes back.", yes=False)
