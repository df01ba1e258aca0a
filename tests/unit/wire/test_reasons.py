"""Every reason for which a message is refused is a short word, and stands in the page of formats."""

from __future__ import annotations

from pathlib import Path

from sfd_stream.wire.reasons import Reason, bad

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")


def test_a_refusal_carries_its_reason_and_words() -> None:
    error = bad(Reason.BAD_INDEX, "column 7 outside [0, 5)")
    assert (error.reason, str(error)) == ("bad_index", "column 7 outside [0, 5)")


def test_every_reason_is_documented() -> None:
    assert [reason.value for reason in Reason if f"`{reason.value}`" not in PAGE] == []
