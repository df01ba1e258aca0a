"""The boundary: one sentence and the right exit code, whatever happens; nothing loaded before its time."""

from __future__ import annotations

import subprocess
import sys
from typing import NoReturn

import pytest

from sfd_stream import errors
from sfd_stream.cli import app, main

SECRET = "hunter2-hunter2"


def raising(error: BaseException) -> object:
    def run(_arguments: list[str]) -> NoReturn:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.SettingsError("x is wrong; fix it"), 2),
        (errors.RefusedStateError("x is wrong; fix it"), 3),
        (errors.ChecksumError("x is wrong; fix it"), 3),
        (errors.TooManyBadMessagesError("x is wrong; fix it"), 4),
        (errors.BrokerRefusedError("x is wrong; fix it"), 5),
        (errors.StoreRefusedError("x is wrong; fix it"), 5),
    ],
)
def test_each_error_of_the_world_is_a_sentence_and_its_exit_code(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(app, "run", raising(error))
    assert main(["anything"]) == code
    assert capsys.readouterr() == ("", "error: x is wrong; fix it\n")


def test_an_interrupt_is_130_and_a_bug_is_1_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(app, "run", raising(KeyboardInterrupt()))
    assert main(["anything"]) == 130
    assert "Traceback" not in capsys.readouterr().err
    monkeypatch.setattr(app, "run", raising(ZeroDivisionError("oh")))
    assert main(["anything"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: unexpected ZeroDivisionError: oh; ")
    assert "--debug" in err
    assert err.count("\n") == 1


def test_debug_shows_the_traceback_but_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(app, "run", raising(RuntimeError(f"s3://a:{SECRET}@b is away")))
    for arguments in (["--debug", "anything"], ["anything", "--flag", "--debug"]):
        assert main(arguments) == 1
        err = capsys.readouterr().err
        assert "Traceback" in err
        assert SECRET not in err


def test_debug_may_stand_anywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "schema", "--debug"]) == 0
    assert main(["config", "--debug", "schema"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import sfd_stream", ["confluent_kafka", "typer", "rich", "pydantic", "structlog"]),
        ("import sfd_stream.cli", ["confluent_kafka", "typer", "pydantic"]),
        ("import sfd_stream.cli.app", ["confluent_kafka", "pydantic", "scipy", "structlog"]),
        ("import sfd_stream.config", ["confluent_kafka", "typer", "scipy"]),
    ],
)
def test_nothing_is_loaded_before_it_is_needed(code: str, absent: list[str]) -> None:
    probe = f"{code}; import sys; print([name for name in {absent} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_module_is_the_command_and_a_reader_may_leave_early() -> None:
    shell = f"{sys.executable} -m sfd_stream.cli config schema | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{", "")
