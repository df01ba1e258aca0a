"""The page in a real Chromium: it shows what the status says, keeps up, says when the worker is gone, and runs nothing
that came in by a name or a message.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from sfd_stream.observe.facts import LoopState, in_words
from sfd_stream.observe.routes import routes_of
from sfd_stream.observe.server import Port, listening
from sfd_stream.observe.status import PartitionStatus
from tests.support.tools import need
from tests.support.watched import Clock, Stage

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'


class Now(Clock):
    """Real time, moved on by nobody; a wall clock is a day ahead of the browser's, as a node's may be."""

    def __call__(self) -> float:
        return time.time() + 86_400 if self.now > 1e9 else time.monotonic()


@dataclass
class Live:
    """A stage whose time is real; rows flow while it is `flowing`."""

    stage: Stage
    flowing: threading.Event = field(default_factory=threading.Event)
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self._over.wait(0.1):
            if self.flowing.is_set():
                for partition in self.stage.states:
                    self.stage.feed(partition, 20)
            self.stage.watch.alive()
            if self.stage.watch.due() and self.flowing.is_set():
                self.stage.show()

    @contextmanager
    def running(self) -> Iterator[str]:
        port = Port(listening("127.0.0.1", 0), routes_of(self.stage.watch, 60.0))
        port.start()
        thread = threading.Thread(target=self.run)
        thread.start()
        self.close_port = port.close
        try:
            yield port.address
        finally:
            self._over.set()
            thread.join()
            port.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = need("chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path)
        yield chromium
        chromium.close()


@pytest.fixture
def live() -> Live:
    stage = Stage(partitions=3, words=(EVIL,) * 45, clock=Now(0), wall=Now(2e9))
    live = Live(stage)
    live.flowing.set()
    return live


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.complaints = []
    page.on("console", lambda message: page.complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    yield page
    context.close()


def value(page: Any, name: str) -> str:
    found: str = page.get_attribute(f'[data-field="{name}"]', "data-value")
    return found


def await_value(page: Any, name: str, wanted: str) -> None:
    page.wait_for_function(
        '([name, wanted]) => document.querySelector(`[data-field="${name}"]`).dataset.value === wanted',
        arg=[name, wanted],
        timeout=15_000,
    )


def settled(page: Any, live: Live, address: str) -> dict[str, Any]:
    """The status, once rows have stopped and the page has shown the last."""
    page.goto(address)
    page.wait_for_selector('#pick option[value="m0"]', state="attached", timeout=30_000)
    live.flowing.clear()
    time.sleep(1.0)  # whatever was being made is made
    status: dict[str, Any] = page.request.get(f"{address}status.json").json()
    [worker] = status["workers"]
    await_value(page, "rows", str(worker["rows"]))
    return worker


def test_the_values_shown_are_those_of_the_status(page: Any, live: Live) -> None:
    live.stage.watch.dead_letter(1, 5, "bad_index", "column 900 outside [0, 256)", b"x")
    with live.running() as address:
        worker = settled(page, live, address)
        parts = worker["partitions"]
        assert value(page, "topic") == worker["topic"]
        assert value(page, "doing") == worker["doing"]
        assert float(value(page, "rows_per_s")) == worker["rows_per_s"]
        assert int(value(page, "lag")) == sum(part["lag"] for part in parts)
        assert float(value(page, "delta_ratio")) == max(part["delta_ratio"] for part in parts)
        assert page.get_attribute('[data-reason="bad_index"]', "data-value") == "1"
        for part in parts:
            row = page.locator(f'[data-partition="{part["partition"]}"]')
            for name in ("state", "rows", "lag", "applied", "end", "delta_ratio", "checkpoint_age_s", "number"):
                shown = row.locator(f'[data-cell="{name}"]').get_attribute("data-value")
                assert shown == part[name] if name == "state" else float(shown) == part[name], name
        assert page.get_attribute("#spectrum", "data-values") == str(len(worker["merged"]["singular_values"]))
        assert page.locator("#spectrum .bar").count() == len(worker["merged"]["singular_values"])
        assert page.locator("#directions li").count() == len(worker["merged"]["directions"])
        page.select_option("#pick", "p2")
        assert page.get_attribute("#spectrum", "data-values") == str(len(parts[2]["spectrum"]["singular_values"]))
    assert page.complaints in ([], ["Failed to load resource: net::ERR_CONNECTION_REFUSED"])


def test_each_figure_says_what_it_is_of(page: Any, live: Live) -> None:
    with live.running() as address:
        worker = settled(page, live, address)
        reserved, allowed = worker["memory_reserved_bytes"] / 2**20, worker["memory_max_bytes"] / 2**30
        note = page.inner_text("#note-memory")
        assert note == f"reserved for sketches: {reserved:g} MiB of {allowed:g} GiB"  # may be above what is in use
        assert page.inner_text("#note-delta").startswith("worst partition, promised: ≤ ")
        merged = sum(part["failure_probability"] for part in worker["partitions"])
        assert f" · all partitions merged: wrong with probability ≤ {merged:.2g}" in page.inner_text("#note-delta")
        assert "differ beyond the sketch's error" in page.inner_text("#about-drift")
        assert re.search(r" · [0-9.]+ s ago$", page.inner_text("#about-spectrum"))


def test_it_keeps_up_by_itself_while_rows_flow(page: Any, live: Live) -> None:
    with live.running() as address:
        page.goto(address)
        page.wait_for_function("() => last && last.workers[0].history.length > 0", timeout=15_000)
        page.reload()  # with a past
        page.wait_for_selector("[data-partition]", timeout=15_000)
        before = int(value(page, "rows"))
        page.wait_for_function(
            "before => Number(document.querySelector('[data-field=rows]').dataset.value) > before + 50",
            arg=before, timeout=15_000,
        )  # fmt: skip
        assert page.inner_text("#fresh") == "live, every second"
        assert page.is_hidden("#banner")
        assert page.get_attribute("#dot", "class") == "dot"
        page.wait_for_function("() => samples.length > 2", timeout=15_000)
        times = page.evaluate("samples.map((sample) => sample.at)")
        assert max(times) - min(times) < 60, "what the worker remembers and what came since are of one clock"
        assert page.complaints == []


def test_names_and_messages_made_of_html_or_script_do_nothing(page: Any, live: Live) -> None:
    live.stage.watch.dead_letter(0, 1, "malformed", EVIL, EVIL.encode())
    with live.running() as address:
        settled(page, live, address)
        page.wait_for_timeout(1_500)
        assert page.evaluate("window.hacked") is None
        assert page.locator("main img").count() == 0
        assert page.locator("script").count() == 1
        assert EVIL in page.inner_text("#letters")
        words = page.locator(".word").all_inner_texts()
        assert any("<img" in word for word in words), "the evil name is one of the strongest columns, shown as text"
        assert page.complaints == []


def test_a_script_put_into_the_page_is_not_run(page: Any, live: Live) -> None:
    with live.running() as address:
        page.goto(address)
        page.evaluate(
            "() => { const s = document.createElement('script'); s.textContent = 'window.hacked=1';"
            " document.body.append(s); document.body.insertAdjacentHTML('beforeend',"
            " '<img src=x onerror=\"window.hacked=1\">'); }"
        )
        page.wait_for_timeout(500)
        assert page.evaluate("window.hacked") is None
        assert any("Content Security Policy" in complaint for complaint in page.complaints)


def test_it_says_when_the_worker_is_gone(page: Any, live: Live) -> None:
    with live.running() as address:
        page.goto(address)
        page.wait_for_selector("[data-partition]", timeout=15_000)
        live.close_port()
        page.wait_for_selector("#banner:not([hidden])", timeout=15_000)
        assert page.inner_text("#banner").startswith("The worker does not answer since ")
        assert page.inner_text("#fresh") == "not live"


def troubles() -> dict[str, str]:
    """What a worker says of itself by what is wrong with it."""
    well = LoopState(joined=True, stopping=False, sketch_idle=True, broker_away_s=None, memory_reserved_bytes=0)
    return {
        "the broker": in_words((), well._replace(broker_away_s=5.0), 0.0),
        "the store": in_words((PartitionStatus(3, "paused"),), well, 0.0),
        "a partition": in_words((PartitionStatus(3, "reading", stuck_s=9.0),), well, 0.0),
        "memory": "no room in memory for partition 3",
    }


def test_one_worker_in_trouble_among_several_is_seen(page: Any, live: Live) -> None:
    with live.running() as address:
        worker = settled(page, live, address)
        status: dict[str, Any] = {"schema": 1, "workers": [worker, {**worker, "worker": "7"}]}
        page.route("**/status.json", lambda route: route.fulfill(json=status))
        for what, words in troubles().items():
            status["workers"][1]["doing"] = words
            await_value(page, "doing", f"{words} · {worker['doing']}")
            assert page.get_attribute("#dot", "class") == "dot bad", what
        status["workers"][1]["doing"] = "catching up: 9 messages behind"
        page.wait_for_selector("#dot.warn", timeout=15_000)
        assert page.is_hidden("#banner")
        status["down"] = ["1", "4"]
        page.wait_for_selector("#banner:not([hidden])", timeout=15_000)
        assert page.text_content("#banner") == "worker 1 does not answer · worker 4 does not answer"
        assert page.get_attribute("#dot", "class") == "dot bad"


def test_a_reason_has_its_share_of_the_bar_and_drift_the_whole_chart(page: Any, live: Live) -> None:
    for offset in range(4):
        live.stage.watch.dead_letter(1, offset, "bad_index" if offset else "malformed", "words", b"x")
    with live.running() as address:
        worker = settled(page, live, address)
        at_s, moment = worker["at_s"], worker["history"][0]
        drifted = {"drift_degrees": 10, "drift_error_degrees": 4}
        worker["history"] = [{**moment, "at_s": at_s - ago, **drifted} for ago in (90, 75, 60, 45, 30, 15)]
        worker["partitions"] = [{**part, **drifted} for part in worker["partitions"]]
        page.route("**/status.json", lambda route: route.fulfill(json={"schema": 1, "workers": [worker]}))
        page.wait_for_selector("text=over the last 90 s", timeout=15_000)
        shares = page.eval_on_selector_all(".track i", "all => all.map((one) => one.style.getPropertyValue('--w'))")
        assert shares == ["0.750", "0.250"]
        worker["dead_letters"] = {"malformed": 7}
        page.wait_for_selector(".track", state="hidden", timeout=15_000)  # one alone has none to compare with
        line, chart = page.locator("#drift path.spark").bounding_box(), page.locator("#drift").bounding_box()
        assert line["width"] > 0.85 * chart["width"]
        band = page.locator("#drift path.fillarea").bounding_box()
        assert band["y"] < line["y"] < band["y"] + band["height"], "the error is drawn on both sides of the angle"


@pytest.mark.parametrize("width", [320, 390, 768, 1200])
def test_nothing_is_wider_than_the_screen(browser: Any, live: Live, width: int) -> None:
    live.stage.watch.dead_letter(0, 1, "malformed", "w" * 300, b"v" * 300)
    with live.running() as address:
        context = browser.new_context(viewport={"width": width, "height": 800}, is_mobile=width < 700)
        page = context.new_page()
        settled(page, live, address)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        tops = [box.bounding_box()["y"] for box in page.locator(".tile .value").all()]
        cards = [box.bounding_box()["y"] for box in page.locator(".tile").all()]
        assert len(set(tops)) == len(set(cards)), "values of neighbouring tiles stand on one line"
        context.close()
