"""The readers in Go and Java share no code with us, and print of a topic on a real Kafka what our own reader finds."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from sfd_stream import HashedColumns, Sketch, SnapshotReader, SparseFrequentDirections
from sfd_stream.wire.snapshots import Message, Snapshot, encode_snapshot, reference_to
from tests.docs.examples.test_producers import EXAMPLES
from tests.support.cache import cache_folder, filled_once
from tests.support.tools import need
from tests.unit.reader.made import COMPACTED, message, publish_quickly, rows_of, sketch_of, snapshot

if TYPE_CHECKING:
    from tests.support.kafka import Broker

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("readers")]  # each is built once
WORDS = ["sun", "sea", "moon", "star", "naïve", "night"]


def copied(name: str, finish: Callable[[Path], None]) -> Path:
    """A copy of an example, built once per machine and version of its sources."""
    files = sorted(path for path in (EXAMPLES / name).rglob("*") if path.is_file())
    version = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]

    def build(folder: Path) -> None:
        shutil.copytree(EXAMPLES / name, folder, dirs_exist_ok=True)
        finish(folder)

    return filled_once(cache_folder() / "readers" / f"{name}-{version}", build)


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr + done.stdout
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)  # Maven resets colours, whatever it is told


def go_reader(broker: str, topic: str) -> str:
    go = need("go")
    folder = copied("reader-go", lambda folder: _ignore(run([go, "build", "-o", "reader-go", "."], folder)))
    return run([str(folder / "reader-go"), broker, topic], folder)


def java_reader(broker: str, topic: str) -> str:
    maven = [need("mvn"), "-B", "-q"]
    folder = copied("reader-java", lambda folder: _ignore(run([*maven, "compile"], folder)))
    return run([*maven, "compile", "exec:java", f"-Dexec.args={broker} {topic}"], folder)


def _ignore(_: str) -> None:
    """What a build prints."""


readers = pytest.mark.parametrize("read", [go_reader, java_reader])


def lines_of(text: str) -> dict[str, tuple[int, float, list[tuple[str, float]]]]:
    """By key: rows, delta, the top columns."""
    return {
        key: (int(rows), float(delta), [(name, float(value)) for name, value in re.findall(r"(\S+)=(\S+)", top)])
        for key, rows, delta, top in re.findall(r"^(\S+)\trows (\d+)\tdelta (\S+)\ttop (.*)$", text, re.MULTILINE)
    }


def expected(sketch: Sketch, name: Callable[[int], str]) -> tuple[int, float, list[tuple[str, float]]]:
    squares = np.sum(np.asarray(sketch.matrix, dtype=np.float64) ** 2, axis=0)
    top = np.argsort(-squares, kind="stable")[:5]
    return sketch.rows, sketch.delta, [(name(int(column)), float(squares[column])) for column in top]


def near(found: tuple[int, float, list[tuple[str, float]]], wanted: tuple[int, float, list[tuple[str, float]]]) -> bool:
    return (
        found[0] == wanted[0]
        and found[1] == pytest.approx(wanted[1], rel=1e-5)
        and [name for name, _ in found[2]] == [name for name, _ in wanted[2]]
        and [value for _, value in found[2]] == pytest.approx([value for _, value in wanted[2]], rel=1e-5)
    )


def hashed(seed: int, partition: int, **changes: object) -> Snapshot:
    rng = np.random.default_rng(seed)
    rows = [{word: int(rng.integers(1, 9)) for word in WORDS if rng.random() < 0.6} for _ in range(30 + seed)]
    sketch = SparseFrequentDirections(ell=3, features=HashedColumns(1024)).fit(rows).sketch()
    names = sketch.features.names  # type: ignore[union-attr]
    bare = replace(sketch, features=None)
    return snapshot(bare, partition, columns="hashed", hash_seed=0, names=names, partitions=2, **changes)


def topic_with(kafka: Broker, messages: list[Message]) -> str:
    topic: str = kafka.create_topic(partitions=2, config=COMPACTED)
    publish_quickly(kafka, topic, messages)
    return topic


@readers
def test_it_prints_the_newest_of_each_key_and_all_of_them_merged(read: Callable[..., str], kafka: Broker) -> None:
    """Late, old, foreign and damaged messages, a reset key, a snapshot in the store, one of float32."""
    newest = [hashed(1, 0, epoch=2, number=7, dtype="float32"), hashed(2, 1, epoch=1, number=9)]
    late, gone = hashed(3, 0, epoch=1, number=99), hashed(4, 0, group="gone")
    large = encode_snapshot(hashed(5, 0, group="stored"))
    stored = reference_to(large, "s3://bucket/p", "blobs/1")
    good = [message(one) for one in (newest[0], late, newest[1], gone)]
    damaged = Message(good[1].key, good[1].value[:-1] + b"\x00", ())
    foreign = Message(b"other/rows/0", good[0].value, ())
    reset = Message(good[3].key, None, ())  # type: ignore[arg-type]
    junk = Message(b"g/rows/1", b"junk", ())
    text = read(kafka.bootstrap, topic_with(kafka, [*good, damaged, foreign, reset, junk, stored]))
    found = lines_of(text)
    assert set(found) == {"g/rows/0", "g/rows/1", "all"}
    assert "skipped 3 messages that are no snapshots" in text
    assert f"stored/rows/0\tin the store: s3://bucket/p/blobs/1\t{len(large)} bytes" in text
    for one in newest:
        narrow = one.sketch.astype(one.dtype)
        assert near(found[one.id.key], expected(narrow, lambda column, one=one: one.names.get(column, str(column))))
    assert found["all"][0] == sum(one.sketch.rows for one in newest)
    assert {name for name, _ in found["all"][2]} <= set(WORDS)


@readers
def test_it_agrees_with_our_own_reader_about_what_all_rows_are(read: Callable[..., str], kafka: Broker) -> None:
    made = [snapshot(sketch_of(rows_of(seed)), seed, partitions=2, number=3) for seed in (0, 1)]
    topic = topic_with(kafka, [message(one) for one in made])
    rows, delta, top = lines_of(read(kafka.bootstrap, topic))["all"]
    with SnapshotReader(kafka.bootstrap, topic) as reader:
        ours = reader.merged()
    assert rows == ours.rows == 80
    assert delta == pytest.approx(sum(one.sketch.delta for one in made), rel=1e-5)
    assert delta <= ours.delta * (1 + 1e-5), "ours shrinks once more"
    dense = sum(rows_of(seed).toarray().T @ rows_of(seed).toarray() for seed in (0, 1))
    for name, value in top:
        true = dense[int(name), int(name)]
        assert true - delta - 1e-3 <= value <= true + 1e-3


@readers
def test_it_merges_nothing_that_must_not_be_merged(read: Callable[..., str], kafka: Broker) -> None:
    one = snapshot(sketch_of(rows_of(0)), 0)
    merged = replace(
        snapshot(sketch_of(rows_of(0)), 0, group="merged"), merged_from=snapshot(sketch_of(rows_of(0)), 0).parts
    )
    text = read(kafka.bootstrap, topic_with(kafka, [message(one), message(merged)]))
    assert "all\tnot merged: the rows of g/rows/0 would count twice" in text
    text = read(kafka.bootstrap, topic_with(kafka, [message(one), message(hashed(1, 1))]))
    assert "all\tnot merged: columns do not mean the same" in text
