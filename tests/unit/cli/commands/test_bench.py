"""`sfd-stream bench`: its options are checked before anything is measured, and its store is a temporary folder."""

from __future__ import annotations

from pathlib import Path

import pytest

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
