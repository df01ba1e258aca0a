"""`python -m sfd_stream.cli` is the command line, with its exit code."""

from __future__ import annotations

import sys

import pytest

from sfd_stream import cli


def test_it_ends_with_the_exit_code_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "main", lambda: 3)
    monkeypatch.delitem(sys.modules, "sfd_stream.cli.__main__", raising=False)
    with pytest.raises(SystemExit) as ended:
        import sfd_stream.cli.__main__  # noqa: F401 - it runs when it is imported
    assert ended.value.code == 3
