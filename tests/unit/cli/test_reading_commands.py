"""`read`, `plot`, `export`, `merge` on the built-in broker: they tell what was published."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from sfd_stream import SnapshotReader
from sfd_stream.cli import main
from sfd_stream.kafka.producer import Sink
from sfd_stream.reader.merged import MergedSketch, merge
from sfd_stream.wire.snapshots import Snapshot, encode_snapshot, reference_to
from tests.support.kafka import free_ports
from tests.unit.reader.made import message, publish, rows_of, sketch_of, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka_fixtures import BuiltIn


def made(held: tuple[int, ...] = (0, 1), partitions: int = 2, number: int = 1) -> list[Snapshot]:
    names = {0: "sun", 1: "moon", 2: "[red]star[/red]"}
    return [
        snapshot(
            sketch_of(rows_of(p)),
            p,
            partitions=partitions,
            number=number,
            columns="hashed",
            hash_seed=0,
            names=names,
            cluster=None,
        )
        for p in held
    ]


def without_rows(**changes: Any) -> Snapshot:
    return snapshot(sketch_of(sp.csr_array((3, 12))), cluster=None, **changes)


@pytest.fixture
def topic(built_in: BuiltIn) -> str:
    name = built_in.create_topic()
    publish(built_in, name, map(message, made()))
    return name


def run(built_in: BuiltIn, *arguments: str) -> int:
    return main([*arguments, "--broker", built_in.bootstrap])


def wanted() -> MergedSketch:
    return merge(made(), 2000.0)


def test_read_prints_counts_bound_and_words(built_in: BuiltIn, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(built_in, "read", "--topic", topic, "--top", "3") == 0
    printed = capsys.readouterr()
    assert "80 rows, " in printed.out
    assert "rows/0" in printed.out
    assert "sun" in printed.out
    assert printed.err == ""


def test_read_json_says_all_that_a_program_needs(
    built_in: BuiltIn, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(built_in, "read", "--topic", topic, "--top", "3", "--columns", "2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    merged = wanted()
    assert (found["complete"], found["missing"], found["rows"], found["nnz"]) == (True, [], 80, merged.nnz)
    assert (found["delta"], found["squared_frobenius"]) == (merged.delta, merged.squared_frobenius)
    assert [part["partition"] for part in found["partitions"]] == ["rows/0", "rows/1"]
    assert [len(direction["columns"]) for direction in found["directions"]] == [2, 2, 2]
    names = [[(c["name"], c["weight"]) for c in direction["columns"]] for direction in found["directions"]]
    assert names == merged.top(3, 2)
    low, high = found["directions"][0]["share"]
    assert 0 < low <= high <= 1


def test_read_around_the_mean_has_the_directions_of_pca(
    built_in: BuiltIn, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(built_in, "read", "--topic", topic, "--centre", "--top", "99", "--columns", "2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    merged = wanted()
    truth = np.cov(np.vstack([rows_of(p).toarray() for p in (0, 1)]).T)
    assert found["centred"] is True
    assert found["total_variance"] == pytest.approx(np.trace(truth))
    directions, pca = found["directions"], merged.pca(merged.k_max)
    assert [one["explained_variance"] for one in directions] == pca.explained_variance.tolist()
    names = [[(c["name"], c["weight"]) for c in direction["columns"]] for direction in directions]
    assert names == merged.top(merged.k_max, 2, centre=True)
    for one, true in zip(directions, np.linalg.eigvalsh(truth)[::-1], strict=False):
        low, high = one["share"]
        assert 0 <= low <= true / np.trace(truth) <= high <= 1
    assert run(built_in, "read", "--topic", topic, "--centre", "--top", "3") == 0
    printed = capsys.readouterr().out
    assert "variance" in printed
    assert "singular value" not in printed


def test_read_gives_the_failure_probability_of_the_merge(built_in: BuiltIn, capsys: pytest.CaptureFixture[str]) -> None:
    name, risky = built_in.create_topic(), {"failure_probability": 0.004}
    publish(built_in, name, [message(replace(one, sketch=replace(one.sketch, **risky))) for one in made()])
    assert run(built_in, "read", "--topic", name) == 0
    assert "except with probability 0.008" in capsys.readouterr().out
    assert run(built_in, "read", "--topic", name, "--json") == 0
    assert json.loads(capsys.readouterr().out)["failure_probability"] == 0.008


def test_read_around_the_mean_needs_column_sums(built_in: BuiltIn, capsys: pytest.CaptureFixture[str]) -> None:
    name = built_in.create_topic()
    publish(built_in, name, [message(replace(one, sketch=replace(one.sketch, column_sums=None))) for one in made()])
    assert run(built_in, "read", "--topic", name, "--centre") == 3
    assert "without column sums, which --centre needs; set snapshot.column_sums: true" in capsys.readouterr().err
    empty = built_in.create_topic()
    publish(built_in, empty, [message(without_rows())])
    assert run(built_in, "read", "--topic", empty, "--centre", "--json") == 0
    assert json.loads(capsys.readouterr().out)["directions"] == []


def test_read_per_partition_does_not_merge(built_in: BuiltIn, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(built_in, "read", "--topic", topic, "--per-partition", "--json") == 0
    found = json.loads(capsys.readouterr().out)["snapshots"]
    assert [one["rows"] for one in found] == [40, 40]
    assert run(built_in, "read", "--topic", topic, "--per-partition") == 0
    assert capsys.readouterr().out.count("40 rows, ") == 2


def test_what_is_missing_is_shouted(built_in: BuiltIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = built_in.create_topic()
    publish(built_in, name, map(message, made((0, 2), 4)))
    for command in (["read"], ["export", str(tmp_path / "x.csv")], ["plot", str(tmp_path / "x.svg")]):
        assert run(built_in, *command, "--topic", name) == 0
        assert "INCOMPLETE: 2 of 4 partitions, no snapshot of rows/1, rows/3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["read", "--topic", "E"], 3, "has no snapshot"),
        (["read"], 2, "which topic? Give --topic NAME"),
        (["export", "x.pickle", "--topic", "T"], 2, "must end in .npz, .csv, .mtx"),
        (["plot", "x.gif", "--topic", "T"], 2, "must end in .png or .svg"),
        (["plot", "x.svg", "--topic", "N"], 3, "the sketch has no rows yet"),
        (["plot", "x.svg", "--what", "drift", "--topic", "N"], 3, "the sketch has no rows yet"),
        (["export", "x.mtx", "--topic", "N"], 3, "x.mtx is not written: the sketch has no rows yet"),
        (["export", "/no/such/folder/x.csv", "--topic", "T"], 2, "can't write /no/such/folder/x.csv: No such file"),
        (["plot", "/no/such/folder/x.svg", "--topic", "T"], 2, "can't write /no/such/folder/x.svg: No such file"),
    ],
)
def test_what_goes_wrong_is_one_sentence(
    built_in: BuiltIn, topic: str, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, says: str
) -> None:
    topics = {"T": topic, "E": built_in.create_topic()}
    if "N" in arguments:
        topics["N"] = built_in.create_topic()
        publish(built_in, topics["N"], [message(without_rows())])
    assert run(built_in, *(topics.get(argument, argument) for argument in arguments)) == code
    assert says in capsys.readouterr().err


def test_without_a_broker_it_asks_which(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", "--topic", "x"]) == 2
    assert "which broker? Give --broker HOST:PORT" in capsys.readouterr().err


def test_the_settings_file_is_enough(
    built_in: BuiltIn, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A worker's whole file, with the store's options, serves its readers too."""
    file = tmp_path / "settings.yaml"
    file.write_text(
        f"kafka: {{bootstrap.servers: {built_in.bootstrap!r}, group.id: g}}\nsnapshot: {{topic: {topic}}}\n"
        "checkpoint: {url: 's3://bucket', options: {region: eu}}\n"
    )
    assert main(["read", "--config", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 80


# -- export --------------------------------------------------------------------------------------------------


def test_exports_hold_the_sketch(
    built_in: BuiltIn, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {suffix: tmp_path / f"sketch.{suffix}" for suffix in ("npz", "csv", "mtx")}
    for file in files.values():
        assert run(built_in, "export", str(file), "--topic", topic, "--json") == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["file"], said["complete"], said["rows"]) == (str(file), True, 80)
    merged = wanted()
    with np.load(files["npz"], allow_pickle=False) as found:
        assert np.array_equal(found["matrix"], merged.sketch.matrix)
        assert np.array_equal(found["column_sums"], np.asarray(merged.sketch.column_sums))
        assert (int(found["rows"]), float(found["delta"])) == (80, merged.delta)
        assert found["names"].tolist() == ["sun", "moon", "[red]star[/red]"]
        by_name = found["components"][:, found["name_columns"]] * found["name_signs"]
        assert np.array_equal(np.abs(by_name), np.abs(merged.components_by_name()[:, :3]))
        signs = merged.sketch.features.signs()  # type: ignore[union-attr]
        assert found["name_signs"].tolist() == signs[found["name_columns"]].tolist()
        assert found["missing"].tolist() == []
    assert np.array_equal(scipy.io.mmread(files["mtx"]), merged.sketch.matrix)
    with files["csv"].open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    table = merged.to_table()
    assert [row["name"] for row in rows] == table["name"].tolist()
    assert [float(row["weight"]) for row in rows] == table["weight"].tolist()


# -- plot ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_every_picture_is_drawn(
    built_in: BuiltIn, topic: str, tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(built_in, topic, map(message, made(number=2)))
    file = tmp_path / f"all.{suffix}"
    pictures = ["spectrum", "energy", "components", "drift"]
    chosen = [part for what in pictures for part in ("--what", what)]
    assert run(built_in, "plot", str(file), "--topic", topic, "--top", "4", "--json", *chosen) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["file"], said["pictures"], said["rows"]) == (str(file), pictures, 80)
    data = file.read_bytes()
    assert len(data) > 10_000
    assert data.startswith(b"\x89PNG" if suffix == "png" else b"<?xml")


def test_drift_of_one_snapshot_is_an_error_not_an_empty_chart(
    built_in: BuiltIn, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "drift.svg"
    assert run(built_in, "plot", str(file), "--what", "drift", "--topic", topic) == 3
    assert "drift needs two snapshots of each partition, and the topic holds one" in capsys.readouterr().err
    assert not file.exists()


def test_without_matplotlib_it_says_what_to_install(
    built_in: BuiltIn, topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run(built_in, "plot", "x.png", "--topic", topic) == 2
    assert 'pip install "sfd-stream[plot]"' in capsys.readouterr().err


# -- merge ---------------------------------------------------------------------------------------------------


def merge_arguments(built_in: BuiltIn, **settings: str) -> list[str]:
    pairs = {"kafka.group.id": "m"} | {f"merge.{name}": value for name, value in settings.items()}
    return [
        "merge",
        "--once",
        "--broker",
        built_in.bootstrap,
        *(part for key, value in pairs.items() for part in ("--set", f"{key}={value}")),
    ]


def test_merge_publishes_one_sketch_of_several_topics(
    built_in: BuiltIn, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other, out = built_in.create_topic(), built_in.create_topic()
    far = [snapshot(sketch_of(rows_of(9)), 0, topic="other", columns="hashed", hash_seed=0)]
    publish(built_in, other, map(message, far))
    arguments = merge_arguments(built_in, topics=f"{topic}, {other}", topic=out, every_s="0.1", ell="5")
    assert main([*arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {"topic": out, "epoch": 1, "number": 1, "parts": 3, "missing": 0, "rows": 120} == {
        name: said[name] for name in ("topic", "epoch", "number", "parts", "missing", "rows")
    }
    with SnapshotReader(built_in.bootstrap, out) as reader:
        merged = reader.merged()
    assert (merged.rows, merged.sketch.ell, merged.complete) == (120, 5, True)


def test_a_merge_that_goes_on_has_no_json(built_in: BuiltIn, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*merge_arguments(built_in, topics="any", topic="other"), "--json"]
    assert main([part for part in arguments if part != "--once"]) == 2
    assert "--json needs --once" in capsys.readouterr().err


def test_merge_once_ends_well_only_if_it_has_published(
    built_in: BuiltIn,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    empty, referring, out = (built_in.create_topic() for _ in range(3))
    arguments = merge_arguments(built_in, topics=empty, topic=out)
    assert main(arguments) == 3
    assert f"nothing to merge: no snapshot in {empty}" in capsys.readouterr().err
    store_url = (tmp_path / "store").as_uri()
    (tmp_path / "store").mkdir()
    publish(built_in, referring, [reference_to(encode_snapshot(made()[0]), store_url, "gone")])
    assert main(merge_arguments(built_in, topics=referring, topic=out)) == 5
    assert "does not trust" in capsys.readouterr().err
    for told in (f"checkpoint.url={store_url}", f"snapshot.trusted_stores=s3://other/place,{store_url}"):
        assert main([*merge_arguments(built_in, topics=referring, topic=out), "--set", told]) == 5
        assert "which does not exist" in capsys.readouterr().err
    monkeypatch.setattr(Sink, "publish", lambda *_: None)  # its queue is full: the broker takes nothing
    assert main(merge_arguments(built_in, topics=topic, topic=out)) == 5
    assert f"topic {out} did not acknowledge the merged snapshot" in capsys.readouterr().err


def test_merge_says_that_it_is_well_and_ends_in_peace_when_told_to(
    built_in: BuiltIn, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out, port = built_in.create_topic(), f"http.port={free_ports(1)[0]}"
    arguments = [part for part in merge_arguments(built_in, topics=topic, topic=out) if part != "--once"]
    command = [sys.executable, "-m", "sfd_stream.cli", *arguments, "--set", port]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        with SnapshotReader(built_in.bootstrap, out) as reader:
            assert next(reader.watch(every_s=0.2)).rows == 80
        assert main(["health", "--set", port]) == 0
        assert main(["health", "--ready", "--set", port]) == 0
        assert capsys.readouterr().out.startswith("ok\nmerging ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"topic": "out"}, "merge.topics is required"),
        ({"topics": "a, b"}, "merge.topic is required"),
        ({"topics": "a, b", "topic": "b"}, "b is one of them"),
        ({"topics": "a b", "topic": "c"}, "merge.topics must be a Kafka topic's name"),
        ({"topics": "a", "topic": "c", "every": "3"}, "did you mean merge.every_s"),
    ],
)
def test_merge_says_which_setting_is_wrong(
    built_in: BuiltIn, capsys: pytest.CaptureFixture[str], settings: dict[str, Any], says: str
) -> None:
    assert main(merge_arguments(built_in, **settings)) == 2
    assert says in capsys.readouterr().err
