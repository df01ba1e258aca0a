"""What a store holds for a partition: found, verified and summarised without a broker."""

from __future__ import annotations

import uuid

import pytest

from sfd_stream.state.manifest import Manifest
from sfd_stream.state.perform import run
from sfd_stream.state.steps import Refused
from sfd_stream.storage.memory import MemoryStore
from sfd_stream.tools.inspect import (
    Place,
    Standing,
    find,
    newest_manifests,
    patient,
    places_in,
    stand,
    stored_shape,
    summarise,
    verify,
)
from tests.system.fakes import D, plan_of, rows, worker_on

PLACE = Place("group", "rows", 0)
ROWS = {0: 120, 1: 30}


@pytest.fixture
def store() -> MemoryStore:
    """What a worker has left."""
    made = MemoryStore(uuid.uuid4().hex)
    worker, _, _ = worker_on({partition: rows(count) for partition, count in ROWS.items()}, store=made)
    worker.run()
    return made


def newest(store: MemoryStore) -> Manifest:
    found = run(stand(PLACE), store, patient(1.0)).newest
    assert isinstance(found, Manifest)
    return found


def test_the_partitions_of_a_topic_are_found_with_their_newest_manifests(store: MemoryStore) -> None:
    assert [str(place) for place in places_in(store, "group", "rows")] == ["rows/0", "rows/1"]
    assert places_in(store, "group", "others") == []
    found = newest_manifests(store, "group", "rows", give_up_s=1.0)
    assert {place.partition: manifest.next_offset for place, manifest in found.items()} == ROWS
    assert run(stand(Place("group", "rows", 7)), store, patient(1.0)) == Standing((), None)


def test_a_manifest_that_does_not_exist_is_refused_with_those_that_do(store: MemoryStore) -> None:
    numbers = run(stand(PLACE), store, patient(1.0)).numbers
    assert run(find(PLACE, None), store, patient(1.0)) == newest(store)
    refused = run(find(PLACE, 99), store, patient(1.0))
    assert refused == Refused("there is no checkpoint 99 of rows/0", f"there are {', '.join(map(str, numbers))}")


def test_verification_reads_every_blob_and_names_the_damaged_one(store: MemoryStore) -> None:
    assert run(verify(PLACE), store, patient(1.0)).problems == ()
    blob = newest(store).references[0]
    store.put(blob.key, store.get(blob.key)[:-1])
    found = run(verify(PLACE), store, patient(1.0))
    assert found.problems
    assert f"checkpoint {newest(store).number} of rows/0" in found.problems[-1].why


def test_a_summary_has_the_counts_of_the_newest_state(store: MemoryStore) -> None:
    found = summarise(store, "group", "rows", plan_of().shape)
    assert {partition: (part.rows, part.nnz, part.next_offset) for partition, part in found.items()} == {
        partition: (count, count, count) for partition, count in ROWS.items()
    }


def test_a_state_is_read_with_the_shape_that_it_was_made_with(store: MemoryStore) -> None:
    stored = newest(store).parameters
    assert "column_squares" not in stored, "as in manifests of older versions"
    shape = stored_shape(stored)
    assert (shape.columns.d, shape.parameters.ell, shape.parameters.column_squares) == (D, 4, False)
