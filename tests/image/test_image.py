"""What is in the image: small, no tools, no privileges, exactly the locked packages."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest

from tests.image.containers import LOCKED_DOWN, ROOT, UID
from tests.parts.engine import Engine

pytestmark = pytest.mark.image

COMPRESSED_MAX_BYTES = 200_000_000
PYTHON = ("--entrypoint", "/opt/sfd-stream/bin/python")


def locked(part: str) -> dict[str, str]:
    """Names and versions of one part of the lock."""
    text = (ROOT / "requirements.lock").read_text()
    body = text.partition(f"# == {part}:")[2].partition("# == ")[0]
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", body, re.MULTILINE))


def test_it_is_small(engine: Engine, image: str) -> None:
    """As a registry stores it: layers, gzipped."""
    with subprocess.Popen([engine.client, "save", image], stdout=subprocess.PIPE, env=engine.environment) as save:
        size = subprocess.run("gzip -6 | wc -c", shell=True, stdin=save.stdout, capture_output=True, check=True).stdout  # noqa: S602 - a fixed text
    assert save.returncode == 0
    write_contents(engine, image, int(size))
    assert int(size) < COMPRESSED_MAX_BYTES


def write_contents(engine: Engine, image: str, compressed_bytes: int) -> None:
    """For people to read: dist/image-contents.txt."""
    script = (
        "import importlib.metadata as m\n"
        "for d in sorted(m.distributions(), key=lambda d: d.name.lower()):\n"
        "    terms = d.metadata.get('License-Expression') or d.metadata.get('License') or ''\n"
        "    print(d.name, d.version, terms.partition(chr(10))[0][:80])\n"
    )
    packages = engine.run("run", "--rm", *PYTHON, image, "-c", script)
    debian = engine.run("run", "--rm", "--entrypoint", "dpkg-query", image, "-W", "-f", "${Package} ${Version}\\n")
    layers = engine.run("history", "--format", "{{.Size}}\t{{.CreatedBy}}", image)
    parts = (f"compressed: {compressed_bytes:,} bytes", f"layers\n{layers}", f"Python\n{packages}", f"Debian\n{debian}")
    (ROOT / "dist").mkdir(exist_ok=True)
    (ROOT / "dist" / "image-contents.txt").write_text("\n\n".join(parts) + "\n")


def test_it_holds_the_locked_packages_and_nothing_else(engine: Engine, image: str) -> None:
    script = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    found = json.loads(engine.run("run", "--rm", *PYTHON, image, "-c", script))
    found = {name.lower().replace("_", "-").replace(".", "-"): version for name, version in found.items()}
    assert found.pop("sfd-stream")
    run = locked("run")
    assert set(run) - {"colorama"} == set(found)  # colorama is for another system
    assert not set(found) & (set(locked("build")) | set(locked("rest")))


def test_it_has_no_compiler_no_cache_and_no_sources_of_the_build(engine: Engine, image: str) -> None:
    look = "for f in /src /wheels /build /root/.cache /opt/sfd-stream/bin/pip; do [ ! -e $f ] || echo $f; done;"
    look += " for p in gcc cc c++ ld make hatchling; do command -v $p || true; done"
    assert engine.run("run", "--rm", "--user", "0", "--entrypoint", "sh", image, "-c", look) == ""


def test_it_is_nobody_in_particular_and_owns_nothing(engine: Engine, image: str) -> None:
    config = json.loads(engine.run("inspect", "--format", "{{json .Config}}", image))
    assert config["User"] == f"{UID}:{UID}"
    assert config["Entrypoint"] == ["sfd-stream"]
    assert config["Healthcheck"]["Test"] == ["CMD", "sfd-stream", "health"]
    assert {"title", "description", "licenses", "version", "revision", "created"} <= {
        name.removeprefix("org.opencontainers.image.") for name in config["Labels"]
    }
    find = [
        "--entrypoint",
        "find",
        image,
        "/opt",
        "-xdev",
        "(",
        "-uid",
        UID,
        "-o",
        "-perm",
        "-o+w",
        ")",
        "!",
        "-type",
        "l",
    ]
    assert engine.run("run", "--rm", *find) == ""


def test_it_runs_locked_down_and_its_byte_code_is_ready(engine: Engine, image: str) -> None:
    assert engine.run("run", "--rm", *LOCKED_DOWN, image, "--version").startswith("sfd-stream ")
    script = (
        "import sfd_stream.cli.app, sys, pathlib; c = sfd_stream.cli.app.__cached__; print(pathlib.Path(c).exists())"
    )
    assert engine.run("run", "--rm", *LOCKED_DOWN, *PYTHON, image, "-c", script) == "True"


def test_missing_settings_are_said_in_words(engine: Engine, image: str) -> None:
    answer = engine.ask("run", "--rm", *LOCKED_DOWN, image)
    assert answer.returncode == 2
    assert "kafka.bootstrap.servers is required" in answer.stderr


def test_it_sees_the_quota_and_not_the_host(engine: Engine, image: str) -> None:
    script = "from sfd_stream.service.quota import own_quota as q; print(q().cpus, q().memory_bytes)"
    limits = ("--memory", "268435456", "--cpus", "0.5")
    answer = engine.ask("run", "--rm", *limits, *LOCKED_DOWN, *PYTHON, image, "-c", script)
    if "cgroup" in answer.stderr and os.environ.get("CI", "").lower() != "true":
        pytest.skip(f"this engine sets no limits: {answer.stderr.strip()}")
    assert answer.stdout.split() == ["0.5", "268435456"], answer.stderr
