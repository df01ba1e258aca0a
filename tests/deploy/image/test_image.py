"""What is in the image: small, no tools, no privileges, exactly the locked packages."""

from __future__ import annotations

import json
import re

import pytest

from tests.deploy.image.containers import LOCKED_DOWN, ROOT, UID
from tests.deploy.image.contents import PYTHON, Contents, contents
from tests.deploy.test_lock import FOREIGN
from tests.support.engine import Engine

pytestmark = pytest.mark.image

COMPRESSED_MAX_BYTES = 200_000_000


def locked(part: str) -> dict[str, str]:
    """Names and versions of one part of the lock."""
    text = (ROOT / "requirements.lock").read_text()
    body = text.partition(f"# == {part}:")[2].partition("# == ")[0]
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", body, re.MULTILINE))


@pytest.fixture(scope="module")
def inside(engine: Engine, image: str) -> Contents:
    """Also written for people to read, beside what the page in docs/ says."""
    found = contents(engine, image)
    (ROOT / "dist").mkdir(exist_ok=True)
    (ROOT / "dist" / "image.md").write_text(found.page())
    return found


def test_it_is_small(inside: Contents) -> None:
    assert inside.compressed_bytes < COMPRESSED_MAX_BYTES


def test_a_scan_finds_nothing_that_should_not_be_there(inside: Contents) -> None:
    assert inside.found
    assert {name: found for name, found in inside.found.items() if found} == {}


def test_the_scan_sees_what_the_list_of_packages_says(inside: Contents) -> None:
    [pip] = inside.of_the_base.values()
    assert pip or not any(line.startswith("python3-pip ") for line in inside.debian)


def test_it_holds_the_locked_packages_and_nothing_else(engine: Engine, image: str) -> None:
    script = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    found = json.loads(engine.run("run", "--rm", *PYTHON, image, "-c", script))
    found = {name.lower().replace("_", "-").replace(".", "-"): version for name, version in found.items()}
    assert found.pop("sfd-stream")
    run = locked("run")
    assert set(run) - FOREIGN == set(found)
    assert not set(found) & (set(locked("build")) | set(locked("rest")))


def test_it_is_nobody_in_particular(engine: Engine, image: str) -> None:
    config = json.loads(engine.run("inspect", "--format", "{{json .Config}}", image))
    assert config["User"] == f"{UID}:{UID}"
    assert config["Entrypoint"] == ["sfd-stream"]
    assert config["Healthcheck"]["Test"] == ["CMD", "sfd-stream", "health"]
    assert {"title", "description", "licenses", "version", "revision", "created"} <= {
        name.removeprefix("org.opencontainers.image.") for name in config["Labels"]
    }


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
    script = "from sfd_stream.config.container_limits import own_quota as q; print(q().cpus, q().memory_bytes)"
    limits = ("--memory", "268435456", "--cpus", "0.5")
    answer = engine.ask("run", "--rm", *limits, *LOCKED_DOWN, *PYTHON, image, "-c", script)
    if "cgroup" in answer.stderr:
        pytest.skip(f"this engine sets no limits: {answer.stderr.strip()}")
    assert answer.stdout.split() == ["0.5", "268435456"], answer.stderr
