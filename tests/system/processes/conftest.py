"""Signals and logging are put back after a command that ran in this process."""

from __future__ import annotations

from tests.system.checkpoints.conftest import left_as_found

__all__ = ["left_as_found"]
