"""The metadata of committed offsets, which workers of other versions read."""

from __future__ import annotations

import re

import pytest

from sfd_stream.state.manifest import StateId
from sfd_stream.state.offset_metadata import is_published, metadata_of, state_id_in

READ_BY_75B2D4E = re.compile(r"sfd-state (\d+) (\d+)")


@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize("state_id", [None, StateId(3, 14), StateId(1, 1), StateId(2**52, 10**15)])
def test_what_is_written_is_read(state_id: StateId | None, published: bool) -> None:
    metadata = metadata_of(state_id, published=published)
    assert (state_id_in(metadata), is_published(metadata)) == (state_id, published)


@pytest.mark.parametrize("published", [True, False])
def test_workers_of_75b2d4e_read_the_state_of_every_transaction(published: bool) -> None:
    found = READ_BY_75B2D4E.fullmatch(metadata_of(StateId(3, 14), published=published))
    assert found is not None
    assert (int(found[1]), int(found[2])) == (3, 14)


def test_a_published_state_is_written_as_it_always_was() -> None:
    assert metadata_of(StateId(3, 14), published=True) == "sfd-state 3 14"
    assert metadata_of(None, published=True) == ""


def test_the_word_that_was_written_for_some_commits_is_read() -> None:
    assert state_id_in("sfd-state 3 14 unpublished") == StateId(3, 14)
    assert not is_published("sfd-state 3 14 unpublished")


@pytest.mark.parametrize("metadata", ["3 14", "sfd-state 3 14 15", "sfd-state x 1", "somebody's"])
def test_other_metadata_names_no_state(metadata: str) -> None:
    assert state_id_in(metadata) is None
    assert is_published(metadata)
