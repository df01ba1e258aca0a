"""Columns that grow or are hashed, and forgetting: a run cut in pieces ends in the bits of one that was not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sfd_stream.wire.columns import HashedColumns
from sfd_stream.wire.rows.encode import encode_row
from tests.support.kafka import Broker
from tests.system.conftest import MakeRun
from tests.system.runs import assert_same

MODES: dict[str, dict[str, dict[str, Any]]] = {
    "growing": {"input": {"columns": "growing", "d_max": 300}, "sketch": {"d": 8}},
    "hashed": {"input": {"columns": "hashed", "names_max": 50}},
    "half-life": {"sketch": {"half_life_rows": 700.0}},
    "paper": {"sketch": {"method": "paper"}},
}


def messages(mode: str, count: int) -> list[bytes]:
    rng = np.random.default_rng(5)
    found = []
    for number in range(count):
        columns = np.sort(rng.choice(min(8 + number // 4, 100), size=5, replace=False))
        words = [f"word {column}" for column in columns]
        features = words if mode == "hashed" else columns
        found.append(encode_row(features, rng.normal(size=5), packed=mode != "hashed"))
    return found


@pytest.mark.parametrize("mode", MODES)
def test_cut_in_two_it_ends_in_the_same_bits(kafka: Broker, make_run: MakeRun, mode: str) -> None:
    topic, values = kafka.create_topic(), messages(mode, 3_000)
    cut, whole = (make_run(kafka, topic, changes=MODES[mode]) for _ in range(2))
    for part in (values[:777], values[777:1400], values[1400:]):
        kafka.produce(topic, part)
        cut.inside()
    whole.inside()
    state = cut.state(0)
    assert state.rows == 3_000
    assert_same(state, whole.state(0))
    if isinstance(state.columns, HashedColumns):
        assert len(state.columns.names) == 50
        assert set(state.columns.names.values()) <= {f"word {column}" for column in range(100)}


def test_a_new_partition_may_start_at_the_end(kafka: Broker, make_run: MakeRun) -> None:
    topic, values = kafka.create_topic(), messages("fixed", 50)
    kafka.produce(topic, values[:30])
    run = make_run(kafka, topic, changes={"input": {"start": "latest"}})
    run.inside()
    assert run.durable_offset(0) == 30
    kafka.produce(topic, values[30:])
    run.inside()
    assert run.state(0).rows == 20
