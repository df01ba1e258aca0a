"""The producers in docs/examples know nothing of sfd-stream, and what they send is read as it was meant."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from sfd_stream.wire.columns import Columns, FixedColumns, HashedColumns
from sfd_stream.wire.hashing import signed_columns
from sfd_stream.wire.rows.decode import decode
from sfd_stream.wire.rows.part import RowLimits
from tests.support.tools import need, npm_packages

if TYPE_CHECKING:
    from tests.support.kafka import Broker

pytestmark = pytest.mark.xdist_group("node")  # its packages are fetched once
EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
NUMBERED: list[dict[str, float]] = [{"17": 2.5, "3": 1.0}, {}, {"0": -1e-3, "19": 7}]
LIKE_NUMBERS: list[dict[str, float]] = [
    {"4155551234567": 1, "7": 2},
    {"007": 3, "7": 4, "4294967296": 5},
    {"٣": 6, "4294967295": 7, "1" * 5000: 8},
]
NAMED: list[dict[str, float]] = [{"apple": 2, "naïve": 1.5}, {"apple": -1}]


def python_example(_: Path) -> list[str]:
    return [sys.executable, str(EXAMPLES / "producer.py")]


def node_example(folder: Path) -> list[str]:
    """Beside its packages, as npm would put them."""
    node, wanted = need("node"), json.loads((EXAMPLES / "package.json").read_text())["dependencies"]
    packages = [f"{name}@{version}" for name, version in wanted.items()]
    home = npm_packages(f"examples-{'-'.join(wanted.values())}", packages)
    shutil.copy(EXAMPLES / "producer.mjs", folder)
    (folder / "node_modules").symlink_to(home / "node_modules")
    return [node, str(folder / "producer.mjs")]


def values_in(broker: Broker, topic: str, count: int) -> list[bytes]:
    """The messages of the topic's one partition, in their order."""
    consumer: Any = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "nobody", "log_level": 0})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions_of(consumer, topic))])
    try:
        found = [message.value() for _ in range(count) if (message := consumer.poll(30)) is not None]
        assert consumer.poll(0.5) is None, "more came than was sent"
    finally:
        consumer.close()
    return found


def partitions_of(consumer: Any, topic: str) -> int:
    return len(consumer.list_topics(topic, timeout=10).topics[topic].partitions)


def rows_of(values: list[bytes], columns: Columns) -> list[dict[int, float]]:
    batch = decode(values, columns, RowLimits(string_bytes_max=10_000))
    assert not batch.bad
    matrix = batch.block.csr()
    bounds = list(zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True))
    return [dict(zip(matrix.indices[a:b].tolist(), matrix.data[a:b].tolist(), strict=True)) for a, b in bounds]


def as_numbers(row: dict[str, float]) -> dict[int, float]:
    return {int(column): value for column, value in row.items()}


def as_hashed(row: dict[str, float]) -> dict[int, float]:
    columns, signs = signed_columns(list(row), 1000, 0)
    return dict(zip(columns.tolist(), (signs * list(row.values())).tolist(), strict=True))


def by_content(rows: list[dict[int, float]]) -> list[list[tuple[int, float]]]:
    return sorted(sorted(row.items()) for row in rows)


@pytest.mark.parametrize("example", [python_example, node_example])
@pytest.mark.parametrize(
    ("rows", "columns", "meant"),
    [
        (NUMBERED, FixedColumns(20), as_numbers),
        (NAMED, HashedColumns(1000), as_hashed),
        (LIKE_NUMBERS[:2], HashedColumns(1000), as_hashed),
        (LIKE_NUMBERS[2:], HashedColumns(1000), as_hashed),
    ],
    ids=["numbered", "named", "long numbers and leading zeros", "other digits and very long names"],
)
def test_what_it_sends_is_read_as_it_was_meant(
    example: Any, rows: list[dict[str, float]], columns: Columns, meant: Any, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.create_topic()
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    command = [*example(tmp_path), broker.bootstrap, topic]
    done = subprocess.run(command, input=text, capture_output=True, encoding="utf-8", check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, f"{len(rows)} rows to {topic}\n"), done.stderr
    found = rows_of(values_in(broker, topic, len(rows)), columns)
    assert by_content(found) == by_content([meant(row) for row in rows])


def test_what_is_not_delivered_ends_the_python_example_with_exit_1(kafka: Broker) -> None:
    topic = kafka.create_topic(config={"max.message.bytes": "100"})
    text = json.dumps({str(column): 1 for column in range(100)}) + "\n"
    command = [*python_example(Path()), kafka.bootstrap, topic]
    done = subprocess.run(command, input=text, capture_output=True, encoding="utf-8", check=False, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert "1 of 1 rows were not delivered: " in done.stderr


def test_the_producers_and_readers_use_nothing_of_ours() -> None:
    """Only the notebook does."""
    for path in (path for path in EXAMPLES.rglob("*") if path.is_file() and path.suffix not in {".ipynb", ".pyc"}):
        assert "import sfd_stream" not in path.read_text()
        assert "from sfd_stream" not in path.read_text()
