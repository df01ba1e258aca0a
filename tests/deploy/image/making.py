"""The image, built as `make image` does; on an engine of our own, on a base of our own."""

from __future__ import annotations

import subprocess

from tests.deploy.image.containers import IMAGE, ROOT
from tests.support.engine import PYTHON_BASE, Engine


def make_image(engine: Engine) -> str:
    if engine.ours:
        engine.make_base(PYTHON_BASE, ("python3", "python3-venv", "python3-pip"))
    command = ["make", "--no-print-directory", "image", f"IMAGE={IMAGE}", "DOCKER=" + engine.client]
    built = subprocess.run(
        command, cwd=ROOT, env=engine.environment, capture_output=True, text=True, check=False, timeout=1_800
    )
    assert built.returncode == 0, (built.stdout + built.stderr)[-3_000:]
    return IMAGE
