"""A real Kubernetes control plane on loopback, with nodes that kwok plays: objects are real, containers do not run.

    with Cluster.start(control_plane()) as cluster:
        cluster.kubectl("get", "nodes")

etcd, API server, controllers and scheduler are Kubernetes' own; admission is as it comes. All of them die with the
process that started them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.control_plane import STAGES
from tests.support.kafka import free_ports
from tests.support.seaweed import DIES_WITH_US

NODES = 3
READY_WITHIN_S = 120.0
_TOKEN = "tests"


class Cluster:
    """`kubectl` and `helm` talk to it as an administrator."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs = programs
        self.folder = folder
        self._running = ExitStack()
        self._etcd, self._peer, self._port = free_ports(3)

    @classmethod
    def start(cls, programs: Path) -> Self:
        cluster = cls(programs, Path(tempfile.mkdtemp(prefix="sfd-cluster-")))
        try:
            cluster._begin()
        except BaseException:
            cluster.close()
            raise
        return cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._running.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # What tests do

    def kubectl(self, *arguments: str, given: str | None = None, ok: bool = True) -> str:
        """What it printed; where `ok` is False it must fail, and what it complained of is returned."""
        return self._run([str(self.programs / "kubectl"), *arguments], given, ok=ok)

    def helm(self, *arguments: str, values: Any = None) -> str:
        given = [] if values is None else ["--values", "-"]
        command = [str(Path(sys.executable).parent / "helm"), *arguments, *given]
        return self._run(command, None if values is None else json.dumps(values), ok=True)

    def get(self, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {READY_WITHIN_S:.0f} s for {what}\n{self._logs()}")
            time.sleep(0.2)

    def _logs(self) -> str:
        """The last lines of each part."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-600:]}" for log in logs)

    # Its parts

    def _begin(self) -> None:
        self._spawn(
            "etcd", "--data-dir", "etcd", "--unsafe-no-fsync", "--listen-client-urls", self._url(self._etcd),
            "--advertise-client-urls", self._url(self._etcd), "--listen-peer-urls", self._url(self._peer),
            "--initial-advertise-peer-urls", self._url(self._peer), "--initial-cluster",
            f"default={self._url(self._peer)}",
        )  # fmt: skip
        self._write_keys()
        self._spawn(
            "kube-apiserver", "--etcd-servers", self._url(self._etcd), "--secure-port", str(self._port),
            "--bind-address", "127.0.0.1", "--cert-dir", "certificates", "--service-account-key-file", "accounts.pub",
            "--service-account-signing-key-file", "accounts.key", "--service-account-issuer",
            "https://kubernetes.default.svc", "--token-auth-file", "tokens.csv", "--authorization-mode", "RBAC",
            "--service-cluster-ip-range", "10.0.0.0/24",
        )  # fmt: skip
        self.wait_for(lambda: self._answers("get", "--raw", "/readyz"), "the API server")
        access = ("--kubeconfig", str(self.folder / "access.yaml"))
        alone = ("--leader-elect=false", "--secure-port=0")
        self._spawn(
            "kube-controller-manager", *access, *alone, "--use-service-account-credentials=false",
            "--service-account-private-key-file", "accounts.key",
            "--node-monitor-grace-period=10m",  # a busy machine must not make nodes look dead
        )  # fmt: skip
        self._spawn("kube-scheduler", *access, *alone)
        self._spawn(
            "kwok",
            *access,
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=40",
            "--config",
            str(self.programs / STAGES),
        )
        for number in range(NODES):
            self.kubectl("apply", "-f", "-", given=json.dumps(_node(number)))
        self.kubectl("wait", "--for=condition=Ready", "nodes", "--all", f"--timeout={READY_WITHIN_S:.0f}s")

    def _write_keys(self) -> None:
        for command in (
            ["openssl", "genrsa", "-out", "accounts.key", "2048"],
            ["openssl", "rsa", "-in", "accounts.key", "-pubout", "-out", "accounts.pub"],
        ):
            subprocess.run(command, cwd=self.folder, check=True, capture_output=True)
        (self.folder / "tokens.csv").write_text(f'{_TOKEN},admin,admin,"system:masters"\n')
        server = {"server": f"https://127.0.0.1:{self._port}", "insecure-skip-tls-verify": True}
        access = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": server}],
            "users": [{"name": "admin", "user": {"token": _TOKEN}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
            "current-context": "tests",
        }
        (self.folder / "access.yaml").write_text(json.dumps(access))

    def _spawn(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*DIES_WITH_US, str(self.programs / name), *arguments],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._running.callback(process.wait, 30)
        self._running.callback(process.kill)

    def _answers(self, *arguments: str) -> bool:
        command = [str(self.programs / "kubectl"), "--request-timeout=5s", *arguments]
        return subprocess.run(command, capture_output=True, check=False, env=self._environment).returncode == 0

    def _run(self, command: list[str], given: str | None, *, ok: bool) -> str:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, check=False, timeout=300, env=self._environment
        )
        assert (done.returncode == 0) == ok, f"{' '.join(command)}\n{done.stdout[-2_000:]}{done.stderr[-4_000:]}"
        return done.stdout if ok else done.stderr

    @property
    def _environment(self) -> dict[str, str]:
        ours = {"KUBECONFIG": str(self.folder / "access.yaml"), "HOME": str(self.folder), "no_proxy": "127.0.0.1"}
        return {**os.environ, **ours, "NO_PROXY": "127.0.0.1"}

    @staticmethod
    def _url(port: int) -> str:
        return f"http://127.0.0.1:{port}"


def _node(number: int) -> dict[str, Any]:
    name = f"node-{number}"
    room = {"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"}  # as every kubelet reports
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": f"z{number}"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"allocatable": room, "capacity": room},
    }
