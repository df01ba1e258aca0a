"""The reference pages say what the declarations say."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.docs.references import PAGES, REFERENCE


@pytest.mark.parametrize(("name", "made"), PAGES.items())
def test_a_reference_page_is_made_of_the_declarations(name: str, made: Callable[[], str]) -> None:
    assert (REFERENCE / name).read_text(encoding="utf-8") == made(), "run python -m tests.docs.references"
