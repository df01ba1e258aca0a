"""An engine that the tests started leaves a folder that can be removed: `.ci/run` removes the cache at its end."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.engine import unmount_all

pytestmark = pytest.mark.image


@pytest.mark.skipif(os.geteuid() != 0, reason="no Docker engine: only root may mount")
def test_a_folder_with_mounts_can_be_removed_after_unmounting(tmp_path: Path) -> None:
    point = tmp_path / "exec" / "netns" / "default"
    point.mkdir(parents=True)
    subprocess.run(["mount", "--bind", str(tmp_path), str(point)], check=True)
    with pytest.raises(OSError, match="busy"):
        shutil.rmtree(tmp_path / "exec")
    unmount_all(tmp_path)
    shutil.rmtree(tmp_path / "exec")
