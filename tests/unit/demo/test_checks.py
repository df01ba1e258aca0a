"""Each claim of the demo can fail, and says so in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sfd_stream.demo import checks
from sfd_stream.sketch.estimator import SparseFrequentDirections
from sfd_stream.sketch.sketch import Sketch
from sfd_stream.tools.produce import bag_messages
from sfd_stream.wire.columns import HashedColumns
from sfd_stream.wire.rows.decode import decode

pytestmark = pytest.mark.xdist_group("claims")  # the library is read once


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
