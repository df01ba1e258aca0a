"""A Docker engine for tests: the one that answers, or one started here for as long as it is needed.

    DOCKER_HOST, or the usual socket   an engine that is already there; it pulls what FROM names
    dockerd, as root                   started here on a socket of its own, where nothing can be pulled: bases are
                                       made from Debian's packages and tagged as FROM names them

With CI=true the packages for the second are installed where they are missing. What a machine's certificates
need stands in the bases made here, never in a Dockerfile.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.cache import cache_folder, locked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MISSING = "Docker; or, as root on Debian: apt-get install docker.io iptables mmdebstrap"
PYTHON_BASE = "python:3.13-slim"
PACKAGES = ("docker.io", "iptables", "mmdebstrap")
START_TIMEOUT_S = 60.0
CACHE = cache_folder() / "docker"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


class NoEngineError(Exception):
    """No Docker engine can be had here; the text says what to install."""


class Engine:
    """Docker's client, and the engine that it talks to."""

    def __init__(self, client: str, host: str | None, *, ours: bool) -> None:
        self.client = client
        self.host = host
        self.ours = ours

    @property
    def environment(self) -> dict[str, str]:
        chosen = {"DOCKER_HOST": self.host} if self.host else {}
        return {**os.environ, "DOCKER_BUILDKIT": "1", **chosen}

    def ask(self, *arguments: str, timeout_s: float = 600.0) -> subprocess.CompletedProcess[str]:
        """Runs the client and returns whatever it answered."""
        command = [self.client, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=timeout_s, env=self.environment
        )

    def run(self, *arguments: str, timeout_s: float = 600.0) -> str:
        """Runs the client, which must succeed; returns what it printed."""
        answer = self.ask(*arguments, timeout_s=timeout_s)
        tail = "\n".join((answer.stdout + answer.stderr).splitlines()[-25:])
        assert answer.returncode == 0, f"docker {' '.join(arguments)} ended with {answer.returncode}:\n{tail}"
        return answer.stdout.strip()

    def answers(self) -> bool:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            return self.ask("version", "--format", "{{.Server.Version}}", timeout_s=10).returncode == 0
        return False

    def has(self, image: str) -> bool:
        return self.ask("image", "inspect", image).returncode == 0

    def make_base(self, image: str, packages: Sequence[str], *, suite: str = "trixie") -> None:
        """An image of Debian's packages under that name, unless it is there already."""
        if self.has(image):
            return
        tar = CACHE / f"{image.replace('/', '_').replace(':', '_')}.tar"
        with locked(tar.with_suffix(".lock")):
            if not tar.exists():
                _bootstrap(tar, packages, suite)
        self.run("import", "--change", 'CMD ["bash"]', str(tar), image)


@contextlib.contextmanager
def start_engine() -> Iterator[Engine]:
    """The first engine that can be had, else NoEngineError."""
    client = shutil.which("docker")
    if client is not None and (there := Engine(client, None, ours=False)).answers():
        yield there
        return
    _install_where_promised()
    daemon = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    # The client of the engine's own package: a newer one, first on the PATH, may want plugins that are not there.
    client = "/usr/bin/docker" if Path("/usr/bin/docker").exists() else client
    if daemon is None or client is None or os.geteuid() != 0:
        raise NoEngineError(MISSING)
    # Two clones on one machine share the layers: one engine at a time, the other waits.
    with locked(CACHE / "engine.lock"), _daemon(daemon, client) as engine:
        yield engine


def say(text: str) -> None:
    print(f"[docker for tests] {text}", file=sys.stderr, flush=True)  # noqa: T201 - progress, for a person who waits


def _install_where_promised() -> None:
    """A machine that says CI=true wants every test to run, and is ours to install packages on."""
    wanted = [
        name for name, file in zip(PACKAGES, ("dockerd", "iptables", "mmdebstrap"), strict=True) if not _has(file)
    ]
    if not wanted or os.environ.get("CI", "").lower() != "true" or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    say(f"installing {' '.join(wanted)}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *wanted]):
        answer = subprocess.run(["apt-get", "-q", *command], capture_output=True, text=True, check=False, env=quiet)
        if answer.returncode != 0:
            raise NoEngineError(f"apt-get {command[0]} failed: {answer.stderr.strip().splitlines()[-1:]}; {MISSING}")


def _has(program: str) -> bool:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is not None


@contextlib.contextmanager
def _daemon(daemon: str, client: str) -> Iterator[Engine]:
    """An engine of our own. Its layers stay in the cache folder: the next run builds on them."""
    folder = CACHE / "engine"
    folder.mkdir(parents=True, exist_ok=True)
    socket = folder / "docker.sock"
    (folder / "pid").unlink(missing_ok=True)
    command = [daemon, "--data-root", str(folder / "root"), "--exec-root", str(folder / "exec")]
    command += ["--pidfile", str(folder / "pid"), "-H", f"unix://{socket}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    engine = Engine(client, f"unix://{socket}", ours=True)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not engine.answers():
            if process.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join((folder / "log").read_text(errors="replace").splitlines()[-8:])
                raise NoEngineError(f"dockerd does not come up here:\n{tail}")
            time.sleep(0.2)
        yield engine
    finally:
        process.terminate()
        process.wait(60)
        unmount_all(folder)


def unmount_all(folder: Path) -> None:
    """Unmounts what dockerd leaves mounted (its network namespace): a folder with a mount cannot be removed."""
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for point in reversed([point for point in points if Path(point).is_relative_to(folder.resolve())]):
        subprocess.run(["umount", point], check=True)


def _bootstrap(tar: Path, packages: Sequence[str], suite: str) -> None:
    """A minimal Debian with the packages, from the mirror that this machine's apt uses."""
    sites = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    mirror = next(site for site in sites if "security" not in site)
    say(f"making a base of {suite} with {' '.join(packages)} (once)")
    fresh = tar.with_suffix(".new.tar")
    settings = tar.with_suffix(".pip.conf")
    settings.write_text(f"[global]\ncert = {_CERTIFICATES}\n")
    command = ["mmdebstrap", "--variant=minbase", f"--include={','.join(('ca-certificates', *packages))}"]
    command += [f"--customize-hook=upload {_CERTIFICATES} {_CERTIFICATES}"]
    command += [f"--customize-hook=upload {settings} /etc/pip.conf", suite, str(fresh), mirror]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise NoEngineError(f"no base could be made: {answer.stderr[-500:]}")
    fresh.rename(tar)
