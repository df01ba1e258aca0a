"""The parts that settings describe: each has the setting's value, and a service next to a worker has its own port."""

from __future__ import annotations

import pytest

from sfd_stream.cli import build
from sfd_stream.cli.build import columns_of, listener_next_to_worker, shape_of
from sfd_stream.config.model import HttpSettings
from sfd_stream.errors import SettingsError
from sfd_stream.observe.server import listening
from sfd_stream.wire.columns import FixedColumns, GrowingColumns, HashedColumns
from tests.support.watched import settings_of


def test_merge_beside_a_worker_takes_another_port_unless_it_was_told_which() -> None:
    with listening("127.0.0.1", 0) as worker:
        taken = worker.getsockname()[1]
        http = HttpSettings(port=taken)
        with listener_next_to_worker(http, own_port=False) as other:
            assert other.getsockname()[1] != taken
        with pytest.raises(SettingsError, match=f"http.port {taken} of 127.0.0.1 is in use"):
            listener_next_to_worker(http, own_port=True)


def test_the_partitions_of_a_topic_share_its_failure_probability_and_have_a_seed_each() -> None:
    settings = settings_of("sketch.failure_probability=0.01", "sketch.seed=7")
    shapes = [shape_of(settings, partition) for partition in range(100)]
    assert sum(shape.parameters.failure_probability for shape in shapes) <= 0.01
    assert {shape.parameters.seed for shape in shapes} == {(7, partition) for partition in range(100)}


@pytest.mark.parametrize(
    ("given", "kind"),
    [("fixed", FixedColumns), ("growing", GrowingColumns), ("hashed", HashedColumns)],
)
def test_columns_are_numbered_as_set(given: str, kind: type) -> None:
    columns = columns_of(settings_of(f"input.columns={given}"))
    assert isinstance(columns, kind)
    assert columns.d == 256


def test_producers_take_messages_as_large_as_the_largest_inline_snapshot() -> None:
    given = "snapshot.inline_max_bytes=990000"
    assert "message.max.bytes" not in build._producer_settings(settings_of())
    assert build._producer_settings(settings_of(given))["message.max.bytes"] == 990_000 + build.MESSAGE_OVERHEAD_BYTES
    own = settings_of(given, "kafka.message.max.bytes=2000000")
    assert build._producer_settings(own)["message.max.bytes"] == "2000000", "the user's own stays"
