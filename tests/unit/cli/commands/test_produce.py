"""`produce` on librdkafka's own broker: what the summary says is in the topic is in the topic."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np
import pytest
import scipy.sparse as sp
from confluent_kafka import Consumer, TopicPartition

from sfd_stream.cli import main
from sfd_stream.cli.commands.produce import _shape
from sfd_stream.errors import SettingsError
from sfd_stream.sketch.synthetic import paper_synthetic

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS = 4  # of every topic that the built-in broker makes


def values_in(broker: str, topic: str, expected: dict[int, int]) -> dict[int, list[Any]]:
    """All messages of each partition, decoded; reads as many as the summary promises, and finds no more."""
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "reader", "enable.auto.commit": False})
    found: dict[int, list[Any]] = {}
    for partition, count in expected.items():
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        assert (low, high) == (0, count)
        consumer.assign([TopicPartition(topic, partition, 0)])
        messages: list[Any] = []
        while len(messages) < count:
            messages += consumer.consume(count - len(messages), timeout=10)
        found[partition] = [msgpack.unpackb(message.value(), strict_map_key=False) for message in messages]
    consumer.close()
    return found


def produced(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["produce", *arguments, "--json"]) == 0
    summary: dict[str, Any] = json.loads(capsys.readouterr().out)
    return summary


def counts_of(summary: dict[str, Any]) -> dict[int, int]:
    return {int(partition): counts["messages"] for partition, counts in summary["partitions"].items()}


def test_synthetic_rows_are_a_number_of_rows_of_columns_and_of_non_zeros() -> None:
    assert _shape("10000,1000,100") == (10_000, 1_000, 100)


@pytest.mark.parametrize(("text", "reason"), [("10,5", "three whole numbers"), ("10,5,6", "0 <= Z <= D")])
def test_no_row_has_more_non_zeros_than_columns(text: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        _shape(text)


@pytest.mark.parametrize("keys", ["round-robin", "hash"])
def test_packed_rows_arrive_each_once_and_the_summary_counts_them(
    broker: str, capsys: pytest.CaptureFixture[str], keys: str
) -> None:
    topic = f"packed-{keys}"
    summary = produced(
        capsys, "--synthetic", "300,50,5", "--seed", "3", "--topic", topic, "--broker", broker, "--keys", keys
    )
    total = summary["total"]
    assert (total["rows"], total["nnz"], total["messages"], total["squared_frobenius"]) == (
        300,
        1500,
        300,
        1500.0,
    )
    found = values_in(broker, topic, counts_of(summary))
    rows = {
        (tuple(np.frombuffer(row["i"], "<u4").tolist()), tuple(np.frombuffer(row["v"], "<f4").tolist()))
        for rows in found.values()
        for row in rows
    }
    matrix = paper_synthetic(300, 50, 5, 3)
    assert rows == {
        (tuple(columns), tuple(values))
        for columns, values in zip(
            matrix.indices.reshape(-1, 5).tolist(), matrix.data.reshape(-1, 5).tolist(), strict=True
        )
    }
    if keys == "round-robin":
        assert set(counts_of(summary).values()) == {75}


def test_blocks_hold_so_many_rows_and_only_the_last_is_short(broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--synthetic", "5000,20,3", "--topic", "blocks", "--broker", broker, "--format", "blocks"]
    summary = produced(capsys, *arguments, "--rows-per-message", "300")
    assert (summary["total"]["rows"], summary["total"]["messages"]) == (5000, 17)
    found = values_in(broker, "blocks", counts_of(summary))
    rows = sorted(len(message["p"]) // 4 - 1 for messages in found.values() for message in messages)
    assert rows == [200, *[300] * 16]
    for partition, messages in found.items():
        counted = summary["partitions"][str(partition)]
        assert counted["rows"] == sum(len(message["p"]) // 4 - 1 for message in messages)
        assert counted["nnz"] == sum(len(message["i"]) // 4 for message in messages)


def test_lists_keep_values_that_float32_would_round(
    broker: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sp.save_npz(tmp_path / "a.npz", sp.csr_array([[0.1, 0, 2.0], [0, 0, 0]]))
    for form in ("list", "packed"):
        topic = f"exact-{form}"
        summary = produced(capsys, str(tmp_path / "a.npz"), "--topic", topic, "--broker", broker, "--format", form)
        assert summary["total"]["squared_frobenius"] == 0.1**2 + 4.0
        found = values_in(broker, topic, counts_of(summary))
        assert len(found[1]) == 1  # an empty row is a row
        values = found[0][0]["v"]
        assert (values if form == "list" else np.frombuffer(values, "<f8").tolist()) == [0.1, 2.0]


def test_json_lines_are_sent_as_they_are_and_counted_as_a_worker_counts_them(
    broker: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text('{"id": "a", "items": ["tea", "tea"], "price": 300}\n\n[{"price": 100}, {}]\n')
    features = "input.features={exclude: [id], fields: {price: {scale: 0.01}}}"
    summary = produced(capsys, str(file), "--topic", "events", "--broker", broker, "--set", features)
    total = summary["total"]
    assert (total["messages"], total["rows"], total["nnz"], total["squared_frobenius"]) == (2, 3, 3, 2**2 + 3**2 + 1)
    assert total["bytes"] == len('{"id": "a", "items": ["tea", "tea"], "price": 300}') + len('[{"price": 100}, {}]')


def test_text_becomes_words_with_counts(broker: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat the dog\n")
    summary = produced(capsys, str(tmp_path / "a.txt"), "--topic", "words", "--broker", broker)
    [row] = values_in(broker, "words", counts_of(summary))[0]
    assert dict(zip(row["i"], row["v"], strict=True)) == {"the": 2, "cat": 1, "dog": 1}
    assert summary["total"]["squared_frobenius"] == 6.0


def test_settings_say_where_and_every_partition_is_in_the_summary(
    broker: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(f"kafka: {{bootstrap.servers: '{broker}', group.id: g}}\ninput: {{topic: settled}}\n")
    summary = produced(capsys, "--synthetic", "1,9,2", "--config", str(file), "--partitions", str(PARTITIONS))
    assert summary["topic"] == "settled"
    assert [counts["rows"] for counts in summary["partitions"].values()] == [1, 0, 0, 0]


def test_people_get_a_table(broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["produce", "--synthetic", "2000,9,2", "--topic", "table", "--broker", broker]) == 0
    out = capsys.readouterr().out
    assert "frobenius" in out
    lines = [line.split() for line in out.splitlines() if line[:1].isdigit() or line.startswith("total")]
    assert [line[0] for line in lines] == ["0", "1", "2", "3", "total"]
    assert all(len(line) == 6 for line in lines)  # no cell is folded
    assert lines[-1][1:3] == ["2,000", "4,000"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "either a FILE or --synthetic"),
        (["--synthetic", "1,2"], "three whole numbers"),
        (["--synthetic", "1,2,3"], "0 <= Z <= D"),
        (["--synthetic", "1,2,1"], "which broker?"),
        (["--synthetic", "1,2,1", "--broker", "h:1"], "which topic?"),
        (["--synthetic", "1,2,1", "--broker", "h:1", "--topic", "a b"], "Kafka topic's name"),
        (["x.txt", "--format", "packed"], "words are text"),
        (["x.jsonl", "--format", "packed"], "records are sent as they are"),
        (["x.unknown"], "--as"),
    ],
)
def test_what_is_missing_is_asked_for_before_anything_is_sent(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["produce", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_another_number_of_partitions_than_the_topic_has_is_refused(
    broker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "produce",
        "--synthetic",
        "1,9,2",
        "--topic",
        "seven",
        "--broker",
        broker,
        "--partitions",
        "7",
    ]
    assert main(arguments) == 2
    assert "topic seven has 4 partitions, not 7" in capsys.readouterr().err


def test_a_message_that_is_too_large_is_told_with_a_remedy(broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--synthetic", "3000,1000,100", "--format", "blocks", "--rows-per-message", "3000"]
    assert main(["produce", *arguments, "--topic", "large", "--broker", broker]) == 5
    assert "send fewer rows in a message" in capsys.readouterr().err


def test_an_interrupt_ends_it_with_130(broker: str) -> None:
    arguments = [
        "produce",
        "--synthetic",
        "100000,10,2",
        "--rate",
        "1",
        "--topic",
        "slow",
        "--broker",
        broker,
    ]
    command = [sys.executable, "-m", "sfd_stream.cli", *arguments]
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "watcher"})
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        consumer.assign([TopicPartition("slow", 0, 0)])
        while consumer.poll(1.0) is None:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    consumer.close()
    assert process.returncode == 130
    assert err.endswith("interrupted\n")
