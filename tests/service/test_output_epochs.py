"""The output topic is read once for all partitions that came together, and anew for those that come later."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp

from sfd_stream import SnapshotReader
from sfd_stream.cli import wiring
from sfd_stream.service.claims import OutputEpochs
from tests.parts.kafka import Broker
from tests.parts.watched import Clock
from tests.service.conftest import MakeRun
from tests.service.runs import Rows
from tests.service.shown import output_topic


def test_it_is_read_once_for_an_assignment_and_again_for_the_next() -> None:
    clock, readings = Clock(10.0), [{0: 3, 1: 4}, {0: 5}]
    epochs = OutputEpochs(lambda: readings.pop(0), clock)
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda partition: epochs.of(partition, 10.0), (0, 1, 2))) == [3, 4, None]
    clock.now = 20.0
    assert epochs.of(0, 15.0) == 5
    assert readings == []


def test_a_reading_that_fails_is_no_answer() -> None:
    answers = [TimeoutError("away"), {0: 7}]

    def read() -> dict[int, int]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    epochs = OutputEpochs(read, Clock())
    with pytest.raises(TimeoutError, match="away"):
        epochs.of(0, 0.0)
    assert epochs.of(0, 0.0) == 7


def test_a_run_of_64_partitions_reads_the_topic_once_and_a_cold_reader_has_all_of_it(
    kafka: Broker, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, topic, shows = Rows.random(64 * 40, partitions=64), kafka.create_topic(partitions=64), output_topic()
    rows.produce(kafka, topic)
    read, times = wiring.output_epochs, []
    monkeypatch.setattr(wiring, "output_epochs", lambda settings: times.append(1) or read(settings))
    run = make_run(kafka, topic, changes={"snapshot": {"topic": shows}})
    run.inside()
    assert times == [1]
    with SnapshotReader(kafka.bootstrap, shows, log_level=0) as reader:
        merged = reader.merged()
    assert {part.id.partition: part.id.epoch for part in merged.parts} == dict.fromkeys(range(64), 1)
    A = sp.vstack(rows.matrices)
    sketch = merged.sketch
    assert (sketch.rows, sketch.nnz, sketch.squared_frobenius) == (A.shape[0], A.nnz, float(np.sum(A.data**2)))
    lost = (A.T @ A).toarray() - sketch.matrix.T @ sketch.matrix
    assert np.linalg.norm(lost, 2) <= sketch.delta
