"""Kubernetes' own programs, built from their Go modules: minutes the first time, then from a folder in the cache.

etcd is the one that this Kubernetes is tested with: its go.mod names it. kwok plays the nodes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.cache import cache_folder, locked

VERSION = "1.36.3"
KWOK = ("sigs.k8s.io/kwok", "v0.8.0")
STAGES = "stages.yaml"
ETCD = "go.etcd.io/etcd/server/v3"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
MISSING = "Go 1.26 or newer, to build Kubernetes' own programs"
_MAJOR, _MINOR, _ = VERSION.split(".")
# Its own build writes the version in; without it charts and clients take it for none.
_VERSION = {"gitVersion": f"v{VERSION}", "gitMajor": _MAJOR, "gitMinor": _MINOR}
_LINK = " ".join(["-s", "-w", *(f"-X k8s.io/component-base/version.{name}={is_}" for name, is_ in _VERSION.items())])
_BUILD = ("go", "build", "-p", "2", "-mod=mod", "-ldflags", _LINK)


class NoControlPlaneError(Exception):
    """It can't be built here; the text says why."""


def control_plane() -> Path:
    """The folder with all programs."""
    folder = cache_folder() / f"kubernetes-{VERSION}"
    programs = folder / "bin"
    with locked(folder.parent / f"{folder.name}.lock"):
        if not all((programs / name).exists() for name in (*PROGRAMS, "etcd", "kwok", STAGES)):
            _build(folder, programs)
    return programs


def _build(folder: Path, programs: Path) -> None:
    if shutil.which("go") is None:
        raise NoControlPlaneError(MISSING)
    programs.mkdir(parents=True, exist_ok=True)
    _say(f"building Kubernetes {VERSION} in {folder} (once, some minutes)")
    source = _download(folder, "k8s.io/kubernetes", f"v{VERSION}")
    (folder / "go.mod").write_text(_requirements(source / "go.mod"))
    (folder / "go.sum").write_bytes((source / "go.sum").read_bytes())
    _go(folder, *_BUILD, "-o", "bin/etcd", ETCD)
    for name in PROGRAMS:
        _say(f"building {name}")
        _go(folder, *_BUILD, "-o", f"bin/{name}", f"k8s.io/kubernetes/cmd/{name}")
    module, version = KWOK
    _go(folder, "go", "install", "-p", "2", "-ldflags", "-s -w", f"{module}/cmd/kwok@{version}", GOBIN=str(programs))
    (programs / STAGES).write_text(_stages(_download(folder, *KWOK) / "kustomize" / "stage"))


def _download(folder: Path, module: str, version: str) -> Path:
    found = json.loads(_go(folder, "go", "mod", "download", "-json", f"{module}@{version}"))
    return Path(found["Dir"])


def _stages(theirs: Path) -> str:
    """How kwok's nodes and pods behave, as it comes; and a pod that is never started again ends well at once."""
    files = [*theirs.glob("node/fast/node-*.yaml"), *theirs.glob("node/heartbeat-with-lease/node-*.yaml")]
    texts = [file.read_text() for file in (*files, *sorted(theirs.glob("pod/fast/pod-*.yaml")))]
    (ends,) = [text for text in texts if "name: pod-complete" in text]
    once = ends.replace("name: pod-complete", "name: pod-once")
    once = once.replace(".metadata.ownerReferences.[].kind", ".spec.restartPolicy").replace("'Job'", "'Never'")
    assert "'Never'" in once
    return "\n---\n".join((*texts, once))


def _requirements(theirs: Path) -> str:
    """A go.mod of ours: Kubernetes names its own parts without a version, so each is replaced by its release."""
    text = theirs.read_text()
    parts = sorted(set(re.findall(r"^\s*(k8s\.io/\S+) v0\.0\.0\s*$", text, re.MULTILINE)))
    etcd = re.search(rf"^\s*{re.escape(ETCD)} (\S+)", text, re.MULTILINE)
    language = re.search(r"^go (\S+)$", text, re.MULTILINE)
    assert parts
    assert etcd
    assert language
    replaced = "".join(f"\t{part} => {part} v0.{VERSION.partition('.')[2]}\n" for part in parts)
    required = f"\tk8s.io/kubernetes v{VERSION}\n\t{ETCD} {etcd[1]}\n"
    return f"module controlplane\n\ngo {language[1]}\n\nrequire (\n{required})\n\nreplace (\n{replaced})\n"


def _go(folder: Path, *command: str, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise NoControlPlaneError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-2_000:]}")
    return done.stdout


def _say(text: str) -> None:
    print(f"[Kubernetes for tests] {text}", file=sys.stderr, flush=True)  # noqa: T201 - progress, for a person who waits
