"""`sfd-stream score` in simulation: every row has its score, with transactions exactly one; and that can fail."""

from __future__ import annotations

import pytest

from tests.simulation.aims import extremes, scores
from tests.simulation.loader import edited
from tests.simulation.mutations import Mutation, until_caught
from tests.simulation.run import ROOT, simulate
from tests.simulation.scenario import draw
from tests.simulation.score_mutations import SCORE_MUTATIONS

SEEDS, CHUNK = 40, 10


def test_every_row_is_scored_under_a_few_seeds() -> None:
    found = [(scores(draw(seed)).score, simulate(scores(draw(seed))).violation) for seed in range(4)]
    assert {delivery for delivery, _ in found} == {"transactional", "at-least-once"}
    assert [violation for _, violation in found if violation] == []


def test_every_extreme_row_is_scored_by_the_pinned_basis_under_a_few_seeds() -> None:
    assert [simulate(extremes(draw(seed))).violation for seed in range(2)] == [None, None]


def test_rows_of_a_partition_that_was_added_after_the_pin_are_not_counted() -> None:
    scenario = extremes(draw(26))
    assert [fault.kind for fault in scenario.faults].count("add partition") == 1
    assert simulate(scenario).violation is None


@pytest.mark.slow
@pytest.mark.parametrize("first", range(2, 2 + SEEDS, CHUNK))
def test_every_extreme_row_is_scored_by_the_pinned_basis(first: int) -> None:
    found = {seed: simulate(extremes(draw(seed))).violation for seed in range(first, first + CHUNK)}
    assert {seed: str(violation) for seed, violation in found.items() if violation} == {}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(4, 4 + SEEDS, CHUNK))
def test_every_row_is_scored(first: int) -> None:
    found = {seed: simulate(scores(draw(seed))).violation for seed in range(first, first + CHUNK)}
    assert {seed: str(violation) for seed, violation in found.items() if violation} == {}


@pytest.mark.parametrize("mutation", SCORE_MUTATIONS.values(), ids=SCORE_MUTATIONS)
def test_every_edit_fits_the_code(mutation: Mutation) -> None:
    for edit in mutation.edits:
        path = ROOT / "sfd_stream" / edit.file
        assert edited(path, [edit]) != path.read_text()


def test_an_offset_that_is_one_too_far_is_caught() -> None:
    assert until_caught(SCORE_MUTATIONS["a scorer's offset one too far"], ROOT, 0, 3) is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", SCORE_MUTATIONS)
def test_a_mutation_of_the_scorer_is_caught(name: str) -> None:
    assert until_caught(SCORE_MUTATIONS[name], ROOT, 0, 40) is not None
