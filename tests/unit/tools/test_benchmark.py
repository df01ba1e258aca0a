"""The measures: each does all of the work that it counts, by the clock that it is given, and cleans up."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from sfd_stream.storage.memory import MemoryStore
from sfd_stream.tools import benchmark, sizing
from tests.unit.storage.faults import FailBefore, FaultyStore

if TYPE_CHECKING:
    from collections.abc import Callable


def ticking() -> Callable[[], float]:
    """A clock that is a second later whenever it is looked at."""
    seconds = itertools.count()
    return lambda: float(next(seconds))


def test_the_sketch_is_fed_until_the_time_is_up() -> None:
    parameters = sizing.plain_shape(50, 5).parameters
    short, long = (benchmark.sketch_rate(parameters, 10, budget_s, ticking()) for budget_s in (1.0, 5.0))
    assert short.rows < long.rows
    assert long.nnz == 10 * long.rows
    assert long.rows_per_s == long.rows / long.seconds


@pytest.mark.parametrize("form", benchmark.FORMS)
def test_every_format_is_decoded(form: benchmark.Format) -> None:
    rate = benchmark.decode_rate(form, 50, 10, 2.0, ticking())
    assert rate.rows >= 1_000
    assert rate.nnz == 10 * rate.rows


def test_a_large_shape_is_reckoned_from_a_small_one_in_proportion() -> None:
    """On a clock that goes by calls the measured part is the same, so only the scaling differs."""
    small = sizing.plain_shape(500, benchmark.CALIBRATED_ELL).parameters
    large = sizing.plain_shape(500, 10 * benchmark.CALIBRATED_ELL).parameters
    row_s, sketch_s = benchmark.calibrated(small, 20, 1.0, ticking())
    larger_row_s, larger_look_s = benchmark.calibrated(large, 20, 1.0, ticking())
    assert larger_row_s == pytest.approx(10 * row_s)
    assert larger_look_s == pytest.approx(100 * sketch_s)


def test_a_stores_answers_are_timed_and_nothing_stays() -> None:
    store = MemoryStore("bench")
    found = benchmark.store_latencies(store, {"small": 10, "large": 100_000}, 3, ticking())
    assert set(found) == {"small", "large"}
    assert all(set(verbs) == {"create", "get", "list", "delete"} for verbs in found.values())
    assert all(times == [1.0, 1.0, 1.0] for verbs in found.values() for times in verbs.values())
    assert store.list("") == []


def test_nothing_stays_in_a_store_that_fails_on_the_way() -> None:
    inner = MemoryStore("bench")
    with pytest.raises(Exception, match="injected"):
        benchmark.store_latencies(FaultyStore(inner, {5: FailBefore()}), {"small": 10}, 3, ticking())
    assert inner.list("") == []
