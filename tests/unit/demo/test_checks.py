"""Each claim of the demo can fail, and says so in words."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from sfd_stream.demo import anomalies, checks
from sfd_stream.demo.anomalies import FoundRow, ScoredRows
from sfd_stream.demo.picture import Picture
from sfd_stream.demo.script import Story
from sfd_stream.demo.stage import DemoSetup, DemoWorker, Workers
from sfd_stream.demo.view import DemoOutput, StreamView, view
from sfd_stream.sketch.estimator import SparseFrequentDirections
from sfd_stream.sketch.scoring.causes import Cause
from sfd_stream.sketch.sketch import Sketch
from sfd_stream.tools.produce import bag_messages
from sfd_stream.wire.columns import HashedColumns
from sfd_stream.wire.rows.decode import decode

pytestmark = pytest.mark.xdist_group("claims")  # the library is read once


@pytest.fixture(scope="module")
def truth() -> checks.Truth:
    return checks.truth()


@pytest.fixture(scope="module")
def sketch(truth: checks.Truth) -> Sketch:
    return SparseFrequentDirections(ell=checks.ELL).partial_fit(truth.block.csr()).sketch()


def test_the_library_has_rows_enough_and_each_word_a_column_of_its_own(truth: checks.Truth) -> None:
    assert truth.rows > 1000
    assert np.all(np.abs(truth.block.values) == 1.0), "no two words of a docstring met in a column"


def test_as_json_events_each_word_has_a_column_of_its_own_too() -> None:
    events = checks.truth_of_events()
    assert events.rows > 1000
    assert np.all(np.abs(events.block.values) == 1.0)
    assert sum(message.nnz for message in events.messages) == events.block.nnz


def test_a_true_sketch_passes_every_check(truth: checks.Truth, sketch: Sketch) -> None:
    assert all(claim.found == claim.fed for claim in checks.check_counters(truth, sketch))
    errors = checks.check_error(truth, sketch)
    assert 0 < errors.true <= errors.certified < 0.05
    assert len(checks.check_spectrum(truth, sketch, 20)) == 20


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": 1}, "rows 1 instead of"),
        ({"nnz": 7}, "non-zeros 7 instead of"),
        ({"squared_frobenius": 2.0}, "squared Frobenius norm 2 instead of"),
        ({"column_sums": np.zeros(checks.COLUMNS)}, "columns of equal sum"),
    ],
)
def test_each_counter_that_differs_is_named(
    truth: checks.Truth, sketch: Sketch, change: dict[str, object], words: str
) -> None:
    with pytest.raises(checks.DemoError, match=words):
        checks.check_counters(truth, replace(sketch, **change))


def test_an_error_above_the_certified_one_and_a_value_outside_its_band_are_said(
    truth: checks.Truth, sketch: Sketch
) -> None:
    boast = replace(sketch, delta=sketch.delta / 100)
    with pytest.raises(checks.DemoError, match="exceeds the certified"):
        checks.check_error(truth, boast)
    with pytest.raises(checks.DemoError, match="outside the band"):
        checks.check_spectrum(truth, boast, 20)


def test_directions_are_words_that_come_together() -> None:
    sea, hill = ("wave", "tide", "harbour"), ("slope", "summit", "meadow")
    bags = [dict.fromkeys((*topic, f"other{i}"), 1) for i in range(40) for topic in (sea, hill)]
    columns = HashedColumns(checks.COLUMNS, checks.HASH_SEED)
    decoded = decode([message.value for message in bag_messages(bags)], columns)
    assert isinstance(decoded.columns, HashedColumns)
    sketch = SparseFrequentDirections(ell=10).partial_fit(decoded.block.csr()).sketch()
    strongest = checks.directions(sketch, decoded.columns.names, 1, 3)[0]
    assert set(strongest) in (set(sea), set(hill))


@pytest.fixture(scope="module")
def strongest(truth: checks.Truth, sketch: Sketch) -> list[str]:
    return checks.directions(sketch, truth.rows_of(truth.kept)[1], 1, 9)[0]


def test_every_planted_row_is_found_and_explained_by_what_makes_it_odd(
    truth: checks.Truth, sketch: Sketch, strongest: list[str]
) -> None:
    found = anomalies.find(truth, sketch, strongest, 6)
    assert len(found.rows) == 3
    assert max(row.p_value for row in found.rows) <= anomalies.P_MAX
    assert len(found.t2) == len(found.over_mean) == found.ordinary + 3
    assert found.false_alarms <= 5
    repeated, _, extreme = found.rows
    assert repeated.cause.share > 0.9
    assert abs(repeated.cause.actual) == 30.0
    assert extreme.reason.startswith("T²"), "only T^2 sees it: its residual is ordinary"


def test_a_planted_row_that_is_not_odd_or_is_explained_by_another_column_ends_the_demo(
    truth: checks.Truth, sketch: Sketch, strongest: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def plant(bag: checks.Bag, odd: list[str]) -> None:
        monkeypatch.setattr(anomalies, "planted", lambda *_: [anomalies.Planted("it", bag, odd)])

    ordinary = truth.kept[-1]
    plant(ordinary, list(ordinary))
    with pytest.raises(checks.DemoError, match="it was not found: its p-value is "):
        anomalies.find(truth, sketch, strongest, 6)
    plant({**ordinary, "zebra": 50}, ["giraffe"])
    with pytest.raises(checks.DemoError, match="it was explained by"):
        anomalies.find(truth, sketch, strongest, 6)


def test_the_rows_that_are_kept_back_are_not_fed_in(truth: checks.Truth) -> None:
    assert truth.rows == len(truth.messages) > 3 * (len(truth.kept) - 1)
    kept = {message.value for message in truth.encode(truth.kept)}
    repeated = sum(message.value in kept for message in truth.messages)
    assert repeated < len(kept) / 10, "some docstrings have the same words"


def test_the_picture_is_one_whole_svg_that_loads_nothing(truth: checks.Truth, sketch: Sketch) -> None:
    values = sketch.singular_values(20)
    true = truth.singular_values(20)
    cause = Cause(3, "<word>", 0.9, 30.0, 0.1)
    row = FoundRow("odd & new", 0.008, "residual", cause)
    scored = ScoredRows([row], 100, 2, 0, over_mean=np.array([0.5, 1.0, 90.0]), t2=np.array([6.0, 2.0, 0.1]))
    picture = Picture("a & b", "<c>", values, true, sketch.delta, [["one", "two"], ["three"] * 30], scored)
    svg = picture.svg()
    tree = ET.fromstring(svg)  # noqa: S314 - our own
    assert {"a & b", "<c>", "one two", "odd & new", "<word>: 30, expected 0.1"} <= {e.text for e in tree.iter()}
    dots = len(true) + 1 + 3
    assert len(tree.findall(".//{*}circle")) == dots, "one for each value, the legend's, and one for each new row"
    assert re.findall(r"https?://[^\"]*", svg) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"href|url\(|@import", svg)


def test_while_it_stays_a_worker_that_dies_ends_it(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"], stdin=subprocess.PIPE)
    process.wait()
    log = tmp_path / "worker-1.log"
    log.write_text('{"event": "no more room"}\n')
    ground = DemoSetup("b:1", "rows", "sketches", "g", "file:///x", given=False)
    teller, worker = DemoOutput(), DemoWorker(1, log, process)
    with Workers(tmp_path, tmp_path / "s.yaml", ground, all={1: worker}) as workers:
        workers.start = lambda _: worker  # type: ignore[method-assign]
        worker.page = lambda: "http://x/"  # type: ignore[method-assign]
        truth, feed = SimpleNamespace(messages=[b""]), SimpleNamespace(send=lambda *_: None)
        story = Story(ground, None, workers, teller, truth, feed, lambda: 0)  # type: ignore[arg-type]
        with pytest.raises(checks.DemoError, match=r"worker 1 ended with exit code 3 before Ctrl-C; .*: no more room"):
            story.stay()


def part(number: int, **change: object) -> dict[str, object]:
    return {
        "partition": number, "state": "reading", "rows": 1500, "lag": 12, "delta_ratio": 0.0125,
        "checkpoint_age_s": 0.4, **change,
    }  # fmt: skip


def screen(look: StreamView) -> str:
    console = Console(width=100, record=True, force_terminal=True, file=io.StringIO())
    console.print(view(look))
    return console.export_text()


def test_the_live_table_shows_who_has_what_and_what_nobody_has() -> None:
    look = StreamView(2000, 4000, {1: [], 2: [part(0), part(2, state="claiming"), part(3, delta_ratio=None, lag=None)]})
    lines = [line.split() for line in screen(look).splitlines() if line.strip()]
    assert ["0", "2", "1,500", "12", "1.25%", "0", "s", "ago"] in lines
    assert ["1", "nobody"] in lines
    assert ["2", "2,", "claiming"] in lines
    assert ["3", "2", "1,500", "0", "s", "ago"] in lines
    assert lines[0][1:] == ["4,500", "rows", "in", "the", "sketch", "of", "2,000", "sent"]
    assert "are starting" in screen(StreamView(0, 4000, {1: [], 2: []}))


def test_where_there_is_no_terminal_lines_are_plain_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    teller = DemoOutput()
    assert not teller.live
    teller.chapter("Rows")
    long = " ".join("x" * 200)  # a space at its end would stay or go with the version of rich
    teller.check(long)
    teller.bars([(2.0, "a [b]"), (1.0, "c")])
    assert capsys.readouterr().out == (
        f"\n1  Rows\n   ✓ {long}\n   1  {'█' * 12}  a [b]\n   2  {'█' * 6}{' ' * 6}  c\n"
    )


def test_on_a_terminal_the_table_is_drawn_below_and_gone_again_at_the_end() -> None:
    looked, out = threading.Event(), io.StringIO()

    def look() -> StreamView:
        looked.set()
        return StreamView(10, 20, {2: [part(0)]})

    teller = DemoOutput(Console(file=out, force_terminal=True, width=100))
    with teller.watching(look):
        assert looked.wait(30)
        teller.sentence("a line above")
    assert "nobody" in out.getvalue()
    assert "a line above" in out.getvalue()
    assert [thread for thread in threading.enumerate() if thread.name == "view"] == []
