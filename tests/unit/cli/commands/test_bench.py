"""`sfd-stream bench`: its options are checked before anything is measured, and its store is a temporary folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sfd_stream.cli import main
from sfd_stream.cli.commands.bench import _in_ms, _opened, bench
from sfd_stream.errors import SettingsError


def test_a_sketch_or_a_row_wider_than_the_matrix_is_refused() -> None:
    with pytest.raises(SettingsError, match="--ell 50 and --z 11 must be at most --d, which is 10"):
        bench(d=10, ell=50, z=11)


def test_without_a_store_a_temporary_folder_is_measured_and_removed() -> None:
    with _opened(None, []) as store:
        store.put("probe", b"bytes")
        folder = Path(store.url.removeprefix("file://"))
        assert (folder / "probe").read_bytes() == b"bytes"
    assert not folder.exists()


def test_an_option_of_the_store_is_a_name_and_a_value() -> None:
    with pytest.raises(SettingsError, match="--store-option 'eu' has no ="), _opened("s3://bucket", ["eu"]):
        pass


def test_latencies_are_printed_in_milliseconds_as_median_and_maximum() -> None:
    assert _in_ms({"median": 0.0123, "most": 0.5}) == "12.3 (500.0)"


def test_bench_measures_sketch_formats_and_store(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    flags = ["bench", "--d", "100", "--ell", "5", "--z", "10", "--seconds", "0.1", "--store", tmp_path.as_uri()]
    assert main([*flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["rates"]) == ["sketch", "decode list", "decode packed", "decode blocks"]
    assert all(rate["rows_per_s"] > 0 for rate in found["rates"].values())
    assert set(found["store"]["latency_s"]) == {"1,024 bytes", "4,000 bytes"}
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert main(flags[:-2]) == 0
    assert "a temporary folder: median (most) of 10" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["bench", "--d", "10", "--ell", "50"], "must be at most --d"),
        (["bench", "--store-option", "region"], "has no =; write it as"),
        (["bench", "--store", "ftp://x", "--seconds", "0.1"], "is not supported; write one of"),
    ],
)
def test_misuse_is_one_sentence_and_a_remedy(flags: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert err.count("\n") == 1
