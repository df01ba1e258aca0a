"""Checkpoint folders that commit 75b2d4e wrote: each is restored bit for bit, and continued."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import yaml

from sfd_stream import SnapshotReader, decode
from sfd_stream.cli.build import shape_of
from sfd_stream.config.model import Settings
from sfd_stream.kafka.mock_broker import EmbeddedBroker
from sfd_stream.kafka.topic_reader import Tail
from sfd_stream.state.manifest import Manifest, decode_manifest
from sfd_stream.state.partition import PartitionState, restore
from sfd_stream.wire.snapshots import Snapshot, decode_message
from tests.support.kafka_fixtures import BuiltIn
from tests.support.trees import HERE, environment_of
from tests.system.versions.made_checkpoints import (
    ALL,
    CASES,
    COUNTED,
    PARTITIONS,
    apply,
    described,
    messages_of,
    settings_of,
)
from tests.system.versions.make_golden import GOLDEN
from tests.system.versions.truth import assert_certified, assert_counted

pytestmark = pytest.mark.xdist_group("golden-checkpoints")  # one process runs the workers once for all
EACH_CASE = pytest.mark.parametrize("case", sorted(CASES))


def newest(folder: Path, case: str, partition: int) -> Manifest:
    return decode_manifest(max((folder / case / case / str(partition) / "manifests").iterdir()).read_bytes())


def restored(folder: Path, case: str, partition: int) -> PartitionState:
    """The newest state in a folder, under today's meaning of the settings."""
    manifest = newest(folder, case, partition)
    segments = tuple((folder / blob.key).read_bytes() for blob in manifest.buffer)
    sketch = (folder / manifest.sketch.key).read_bytes() if manifest.sketch is not None else None
    shape = shape_of(Settings.model_validate(settings_of(case, folder.as_uri())), partition)
    return restore(shape, manifest, sketch, segments)[0]


def matrix_of(case: str, partition: int) -> Any:
    """All rows of a partition as one sparse matrix."""
    messages = [message for message in messages_of(case, partition) if message is not None]
    fresh = shape_of(Settings.model_validate(settings_of(case, "memory://")), partition)
    block = decode(messages, fresh.columns).block
    return sp.csr_array((block.values, block.indices, block.indptr), shape=(block.rows, block.d))


@dataclass(frozen=True)
class Continued:
    """Copies of all cases' folders after workers of today have read the rest of the topics."""

    folder: Path
    broker: BuiltIn


@pytest.fixture(scope="module")
def continued(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Continued]:
    folder = tmp_path_factory.mktemp("continued") / "checkpoints"
    shutil.copytree(GOLDEN, folder)
    with EmbeddedBroker() as embedded, BuiltIn(embedded.bootstrap) as broker:
        for case, partition in product(CASES, PARTITIONS):
            broker.produce(case, messages_of(case, partition), partition=partition)
        workers = [start(folder, case, broker) for case in CASES]
        errors = [worker.communicate(timeout=120)[1] for worker in workers]
        assert not any(worker.returncode for worker in workers), errors
        yield Continued(folder, broker)


def start(folder: Path, case: str, broker: BuiltIn) -> subprocess.Popen[bytes]:
    """A worker of today, from the folder's checkpoints to the end of the topic, in many checkpoints."""
    settings = settings_of(case, folder.as_uri(), broker.bootstrap)
    settings["checkpoint"]["every_rows"] = settings["worker"]["batch_records"] = 100
    path = folder / f"{case}.yaml"
    path.write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "sfd_stream.cli", "run", "--config", str(path), "--until-end"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment_of(HERE))


def published(broker: BuiltIn, case: str, partition: int) -> list[tuple[Snapshot, bytes]]:
    """The snapshots on the output topic, in its order, with their bytes."""
    tail = Tail({"bootstrap.servers": broker.bootstrap, "log_level": 0}, f"sketches-{case}")
    try:
        values = [record.value for batch in tail.catch_up(30) for record in batch if record.value is not None]
    finally:
        tail.close()
    found = [(decode_message(value), value) for value in values]
    return [(one, value) for one, value in found if isinstance(one, Snapshot) and one.id.partition == partition]


@pytest.mark.parametrize("partition", PARTITIONS)
@EACH_CASE
def test_a_folder_of_75b2d4e_is_restored_bit_for_bit(case: str, partition: int) -> None:
    expected = json.loads((GOLDEN / "expected.json").read_text())[f"{case}/{partition}"]
    state = restored(GOLDEN, case, partition)
    assert json.loads(json.dumps(described(state))) == expected
    assert len(newest(GOLDEN, case, partition).buffer) == 2, "rows are pending, in two segments"
    assert state.builder.failure_probability == 0.01, "the certificates keep the meaning under which they were made"


@EACH_CASE
def test_a_worker_continues_a_folder_of_75b2d4e_as_if_nothing_had_happened(continued: Continued, case: str) -> None:
    folder = continued.folder
    for partition in PARTITIONS:
        undisturbed = restored(GOLDEN, case, partition)
        apply(undisturbed, messages_of(case, partition), COUNTED, ALL)
        found = restored(folder, case, partition)
        assert described(found) == described(undisturbed)
        assert newest(folder, case, partition).number > newest(GOLDEN, case, partition).number + 1
        assert (found.bad, found.tombstones) == (1, 1)
        if case != "fading":
            assert_counted(found.sketch(), matrix_of(case, partition))
            assert_certified(found.sketch(), matrix_of(case, partition))


@EACH_CASE
def test_a_pending_snapshot_of_75b2d4e_is_published_as_it_is(continued: Continued, case: str) -> None:
    folder, broker = continued.folder, continued.broker
    for partition in PARTITIONS:
        due = newest(GOLDEN, case, partition).due
        assert due is not None
        shown = published(broker, case, partition)
        first, last = shown[0], shown[-1][0]
        assert first[1] == (GOLDEN / due.blob.key).read_bytes()
        assert (first[0].id.epoch, first[0].id.number) == (due.id.epoch, due.id.number)
        assert first[0].next_offset == COUNTED
        assert last.sketch == restored(folder, case, partition).sketch()
    with SnapshotReader(broker.bootstrap, f"sketches-{case}", log_level=0) as reader:
        assert reader.merged().rows == len(PARTITIONS) * (ALL - 2)


def test_without_randomness_a_continued_folder_is_as_one_made_today() -> None:
    """As far as rounding goes: the folder was made on another processor, whose BLAS rounds in another way."""
    for partition in PARTITIONS:
        state = restored(GOLDEN, "exact", partition)
        fresh = PartitionState(shape_of(Settings.model_validate(settings_of("exact", "memory://")), partition), 0)
        messages = messages_of("exact", partition)
        apply(fresh, messages, 0, ALL)
        apply(state, messages, COUNTED, ALL)
        ours, todays = described(state), described(fresh)
        for rounded in ("counters", "numbers"):
            assert ours[rounded] == pytest.approx(todays[rounded], rel=1e-9)
        ours["arrays"].pop("B"), todays["arrays"].pop("B")
        for exact in ("next_offset", "arrays", "pending", "names"):
            assert ours[exact] == todays[exact]
        gram, of_today = (each.T @ each for each in (state.freeze().arrays["B"], fresh.freeze().arrays["B"]))
        np.testing.assert_allclose(gram, of_today, rtol=0, atol=1e-9 * np.trace(of_today))
