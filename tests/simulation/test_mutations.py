"""Every mutation still fits the code, and those that are caught soon are caught within their number of seeds."""

from __future__ import annotations

import pytest

from tests.simulation.loader import edited
from tests.simulation.mutations import MUTATIONS, Mutation, until_caught
from tests.simulation.run import ROOT

QUICK = (
    "commit before manifest",
    "claim without epoch + 1",
    "next offset one too far",
    "buffer missing in a checkpoint",
)


AIMED = (
    "no LIST after create",
    "forgotten fence",
    "fenced owner stays in the group",
    "a lost partition writes",
    "a revoke publishes after its callback",
    "failed dead letter forgotten",
    "end offset from a failed answer",
    "unknown transaction taken for failed",
    "a recreated topic goes unnoticed",
    "a membership used for what an earlier one held",
    "a failed commit not retried",
    "a merge that was not delivered is forgotten",
    "a dead letter that timed out counts as refused",
    "an output topic that is not answered is read once",
    "a reader keeps a client without records",
)


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_every_edit_fits_the_code(mutation: Mutation) -> None:
    for file in {edit.file for edit in mutation.edits}:
        edits = [edit for edit in mutation.edits if edit.file == file]
        assert edited(ROOT / "sfd_stream" / file, edits) != (ROOT / "sfd_stream" / file).read_text()


@pytest.mark.parametrize("name", QUICK)
def test_a_mutation_is_caught(name: str) -> None:
    assert until_caught(MUTATIONS[name], ROOT, 0, 10) is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", AIMED)
def test_a_mutation_that_random_faults_seldom_reach_is_caught(name: str) -> None:
    assert until_caught(MUTATIONS[name], ROOT, 0, 40) is not None
