"""`benchmarks.compare`: what its intervals promise, and that a tree is measured by the packages that are its own."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from benchmarks.compare import CONFIDENCE, Bench, Line, Result, Run, chosen, compare, lines, run
from tests.support.trees import HERE

DECODE = "decode: packed, rows of 10"


def made(ratios: list[float]) -> Result:
    return Result("made", tuple(map(Run, ratios)), (Run(1.0),) * len(ratios))


def line_of(name: str) -> Line:
    return next(line for line in lines() if line.name == name)


@pytest.mark.parametrize("pairs", [3, 5, 6, 11, 20])
def test_the_interval_covers_the_median_as_often_as_it_says(pairs: int) -> None:
    rng = np.random.default_rng(pairs)
    results = [made(list(row)) for row in np.exp(rng.standard_cauchy((4000, pairs)).clip(-50, 50))]
    covered = np.mean([result.speed.low <= 1 <= result.speed.high for result in results])
    coverage = results[0].speed.coverage
    assert abs(covered - coverage) < 0.02
    assert coverage >= CONFIDENCE or pairs < 6, "five pairs cannot say it with 95 %"


def test_the_verdict_needs_an_interval_on_one_side_of_one() -> None:
    assert made([1.1] * 11).verdict == "faster"
    assert made([0.9] * 11).verdict == "slower"
    assert made([0.9] * 4 + [1.1] * 7).verdict == "no difference found"
    assert made([1.1] * 3).verdict == "too few pairs"


def test_lines_are_chosen_by_the_beginning_of_their_names() -> None:
    assert {line.name.partition(":")[0] for line in chosen(lines(), ["worker", "sketch: z"])} == {"worker", "sketch"}
    assert [line.name for line in chosen(lines(), ["sketch: z=5"])] == ["sketch: z=5"], "not z=500 too"
    assert len(chosen(lines(), [])) == len(lines())
    with pytest.raises(SystemExit, match="no line begins with 'sktch'"):
        chosen(lines(), ["sktch"])


@pytest.mark.slow
def test_a_tree_against_itself_is_measured_in_both_processes(tmp_path: Path) -> None:
    with ExitStack() as stack:
        result = compare(line_of(DECODE), {"old": HERE, "new": HERE}, 1, Bench(tmp_path, stack, 1.0))
    assert min(one.seconds for one in result.old + result.new) > 0


def test_a_tree_that_is_not_imported_is_not_measured(tmp_path: Path) -> None:
    """An installed package would else be compared with itself."""
    with ExitStack() as stack, pytest.raises(SystemExit, match="imported sfd_stream from"):
        run(line_of(DECODE), tmp_path, Bench(tmp_path, stack, 1.0))
