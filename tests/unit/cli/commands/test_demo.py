"""`sfd-stream demo`: what is missing is said before it begins; the second signal does not end the cleanup."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from sfd_stream.cli import main
from sfd_stream.cli.commands.demo import _bucket, _one_signal
from sfd_stream.demo import checks
from sfd_stream.errors import SettingsError
from sfd_stream.tools.produce import bag_messages


def small_truth(rows: int) -> checks.Truth:
    """A text of a few words, quicker to have than the library's."""
    return checks.Truth(
        list(bag_messages({f"word{i % 7}": 1, f"word{i % 11}x": 1, f"word{i}y": 1} for i in range(rows)))
    )


def test_a_broker_that_is_not_there_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sfd_stream.demo.checks.truth", lambda: small_truth(1))
    monkeypatch.setattr("sfd_stream.kafka.topics._TIMEOUT_S", 0.3)
    assert main(["demo", "--broker", "127.0.0.1:1"]) == 5
    assert "did not answer within 0.3 s" in capsys.readouterr().err


def test_a_bucket_and_a_place_for_the_picture_that_are_not_there_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--picture", str(tmp_path / "no" / "folder.svg")]) == 2
    assert "can't be written" in capsys.readouterr().err
    monkeypatch.setattr("sfd_stream.demo.checks.truth", lambda: small_truth(1))
    for name, text in {"ENDPOINT": "http://127.0.0.1:1", "ALLOW_HTTP": "true", "MAX_RETRIES": "0"}.items():
        monkeypatch.setenv(f"SFD_CHECKPOINT__OPTIONS__{name}", text)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    assert main(["demo", "--s3", "bucket"]) == 5
    assert "error: can't list anything in s3://bucket/" in capsys.readouterr().err


def test_the_second_signal_does_not_end_the_cleaning_up() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def end_and_clean_up() -> None:
        with _one_signal(), contextlib.ExitStack() as cleaning_up:
            cleaning_up.callback(os.kill, os.getpid(), signal.SIGINT)
            cleaning_up.callback(os.kill, os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as ended:
        end_and_clean_up()
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_bucket_is_written_as_a_name_or_as_a_url() -> None:
    assert _bucket("b") == "s3://b"
    assert _bucket("b/folder/") == "s3://b/folder"
    assert _bucket("gs://b") == "gs://b"
    with pytest.raises(SettingsError, match="takes a bucket"):
        _bucket("s3://")
