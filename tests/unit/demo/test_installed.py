"""From the wheel, in an environment that has nothing but what the program needs: the demo runs, and its claims hold."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sfd_stream import __version__
from tests.unit.demo.test_demo import CHAPTERS, chapters

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.demo.conftest import Playing

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("installed")]  # one environment is enough


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment's programs: what `make demo` and the image install, in the same way."""
    folder = tmp_path_factory.mktemp("empty")
    (folder / "run.lock").write_text((ROOT / "requirements.lock").read_text().partition("# == build:")[0])
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    into = [*pip, "--python", str(folder / "bin" / "python"), "install", "--no-deps", "--no-compile"]
    run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)])
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    run([*into, "--require-hashes", "-r", str(folder / "run.lock")])
    run([*into, "--no-index", str(next(folder.glob("*.whl")))])
    return folder / "bin"


def test_installed_alone_it_knows_its_version_and_needs_no_extra(installed: Path) -> None:
    environ = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    said = subprocess.run(
        [installed / "sfd-stream", "--version"], capture_output=True, text=True, check=False, env=environ
    )
    assert (said.returncode, said.stdout, said.stderr) == (0, f"sfd-stream {__version__}\n", "")
    extras = subprocess.run([installed / "python", "-c", "import matplotlib"], capture_output=True, check=False)
    assert extras.returncode == 1


def test_the_demo_tells_its_story_in_order_and_leaves_only_a_picture(
    installed: Path, play: Callable[..., Playing]
) -> None:
    playing = play(program=[str(installed / "sfd-stream")])
    code = playing.process.wait(300)
    text = playing.text
    assert code == 0, text
    assert chapters(text) == list(CHAPTERS)
    assert text.count("✓") == 9
    assert text.count("live page is http://127.0.0.1:") == 2
    assert "Worker 2 took over" in text
    assert playing.left_behind() == []
    assert sorted(path.name for path in playing.folder.iterdir()) == ["out", "sfd-demo.svg", "tmp"]
    assert str(playing.folder / "sfd-demo.svg") in text
    assert ET.parse(playing.folder / "sfd-demo.svg").getroot().tag.endswith("svg")  # noqa: S314 - our own
