"""The page of a scorer in a real Chromium: the last extreme rows with their causes, and the histogram of scores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sfd_stream.observe.routes import routes_of
from sfd_stream.observe.server import Port, listening
from sfd_stream.score.watch import ScoreStatus, ScoreWatch
from tests.support.watched import Clock
from tests.system.page.test_page import EVIL, await_value, browser, page
from tests.unit.score.test_watch import one_extreme

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

__all__ = ["browser", "page"]


@contextmanager
def served(watch: ScoreWatch) -> Iterator[str]:
    port = Port(listening("127.0.0.1", 0), routes_of(watch, 60.0, "score.html"))
    port.start()
    try:
        yield port.address
    finally:
        port.close()


def watch_with(name: str) -> ScoreWatch:
    watch, batch = ScoreWatch("g-score", "rows", Clock(), Clock(2_000.0), excerpts=True), one_extreme()
    causes = {"residual": [{**batch.extreme[0]["causes"]["residual"][0], "name": name}], "t2": []}
    watch.delivered(0, replace(batch, extreme=[{**batch.extreme[0], "causes": causes}]))
    watch.status = ScoreStatus("scoring 1 of 1 partitions", True, {0: 17}, 1_940.0, 500)
    return watch


def test_it_shows_the_histogram_and_the_extreme_rows_with_their_causes(page: Any) -> None:
    watch = watch_with("antifreeze")
    with served(watch) as address:
        page.goto(address)
        await_value(page, "rows", "30")
        assert page.get_attribute("#histogram", "data-rows") == "30"
        (row,) = page.locator("#extreme tr").all()
        assert row.get_attribute("data-offset") == "4"
        assert "antifreeze" in row.inner_text()
        assert "(90, expected" in row.inner_text()
        assert page.locator("#histogram rect").count() > 1
        watch.delivered(0, replace(one_extreme(), over_mean=np.ones(70), rows=70))
        await_value(page, "rows", "100")
        assert len(page.locator("#extreme tr").all()) == 2
        assert page.complaints == []


def test_a_name_made_of_html_or_script_does_nothing(page: Any) -> None:
    with served(watch_with(EVIL)) as address:
        page.goto(address)
        await_value(page, "rows", "30")
        assert EVIL in page.locator("#extreme").inner_text()
        assert page.evaluate("window.hacked") is None
        assert page.complaints == []


def test_it_says_when_the_scorer_is_gone(page: Any) -> None:
    with served(watch_with("x")) as address:
        page.goto(address)
        await_value(page, "rows", "30")
    page.wait_for_function(
        "() => document.getElementById('fresh').textContent.includes('does not answer')", timeout=15_000
    )


@pytest.mark.parametrize("width", [320, 1200])
def test_nothing_is_wider_than_the_screen(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    with served(watch_with("x" * 60)) as address:
        page.goto(address)
        await_value(page, "rows", "30")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
