"""The whole way on real Kafka: rows into partitions, a worker, snapshots, one merged sketch that keeps its word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sfd_stream import SnapshotReader, paper_synthetic
from sfd_stream.cli import main
from tests.support.signals import signals_untouched
from tests.unit.reader.made import COMPACTED, spectral_error

if TYPE_CHECKING:
    import pytest

    from tests.support.kafka import Broker


def test_a_run_over_partitions_is_read_as_one_sketch_within_its_bound(
    kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SFD_CONFIG", raising=False)
    rows, out = kafka.create_topic(partitions=8), kafka.create_topic(config=COMPACTED)
    settings = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "kafka.group.id": f"g-{rows}",
        "input.topic": rows,
        "sketch.d": "60",
        "sketch.ell": "12",
        "checkpoint.url": f"memory://{rows}",  # the store is not what is tried here
        "snapshot.topic": out,
        "http.port": "0",
        "log.level": "warning",
    }
    flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    assert main(["produce", "--synthetic", "1600,60,8", "--topic", rows, "--broker", kafka.bootstrap]) == 0
    with signals_untouched():
        assert main(["run", "--until-end", *flags]) == 0
    A = paper_synthetic(1600, 60, 8, 0)
    with SnapshotReader(kafka.bootstrap, out) as reader:
        merged = reader.merged()
    assert merged.complete
    assert len(merged.parts) == 8
    assert (merged.rows, merged.nnz) == (1600, A.nnz)
    assert np.isclose(merged.squared_frobenius, float(A.power(2).sum()), rtol=1e-12)
    assert np.allclose(np.asarray(merged.sketch.column_sums), np.asarray(A.sum(axis=0)).ravel(), rtol=1e-9)
    low, high = spectral_error([A], merged.sketch)
    assert low >= -merged.sketch.rounding - 1e-9
    assert high <= merged.delta
