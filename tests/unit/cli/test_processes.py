"""`run --workers N`: what each worker's command line says. Real processes are in tests/system/processes."""

from __future__ import annotations

import sys
from pathlib import Path

from sfd_stream.cli.processes import Arguments
from sfd_stream.config import load

GIVEN = ["kafka.bootstrap.servers=b:1", "kafka.group.id=g", "input.topic=rows", "sketch.d=10", "sketch.ell=4"]
ARGUMENTS = Arguments(Path("settings.yaml"), ("sketch.ell=5",), until_end=True)


def command(*overrides: str) -> list[str]:
    settings = load(None, environ={}, overrides=[*GIVEN, "checkpoint.url=memory://x", *overrides]).settings
    return ARGUMENTS.command(settings, 2, Path("status/2"))


def test_a_worker_is_this_program_with_a_number_and_the_same_settings() -> None:
    words = command()
    assert words[:3] == [sys.executable, "-m", "sfd_stream.cli"]
    given = dict(zip(words[4::2], words[5::2], strict=False))
    assert (given["--worker-number"], given["--status-folder"]) == ("2", "status/2")
    assert {"--until-end", "--config", "settings.yaml", "sketch.ell=5"} <= set(words)


def test_a_worker_has_the_memory_that_the_supervisor_worked_out_and_room_for_one_buffer_at_least() -> None:
    settings = load(None, environ={}, overrides=[*GIVEN, "checkpoint.url=memory://x"]).settings
    buffer_bytes = settings.sketch.buffer_max_bytes
    for share_bytes, given_bytes in ((2 * buffer_bytes, 2 * buffer_bytes), (buffer_bytes // 2, buffer_bytes)):
        worker = settings.worker.model_copy(update={"memory_max_bytes": share_bytes})
        words = ARGUMENTS.command(settings.model_copy(update={"worker": worker}), 2, Path("status/2"))
        assert f"worker.memory_max_bytes={given_bytes}" in words


def test_a_static_member_s_name_is_made_unique() -> None:
    """Two members of one name would expel each other."""
    assert "kafka.group.instance.id=pod-0-2" in command("kafka.group.instance.id=pod-0")
