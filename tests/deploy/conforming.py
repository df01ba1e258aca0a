"""kubeconform on rendered manifests, offline: Kubernetes' schemas from PyPI, those of operators from their modules."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from tests.support.tools import go_program, need, npm_packages

KUBECONFORM = "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0"
STRIMZI = (
    "@kubernetes-models/strimzi-kafka-operator@1.0.1",
    "@kubernetes-models/apimachinery@3.0.2",
    "typescript@5.8.3",
)
STRIMZI_KINDS = ("KafkaTopic", "KafkaUser")
_REFERENCE = re.compile(r'"(?:/api/_definitions\.json)?#/\$defs/([^"]+)"')
_NAME = "{{.ResourceKind}}{{.KindSuffix}}.json"


def write_schemas(definitions: dict[str, dict[str, Any]], closed: Any, folder: Path) -> None:
    """Custom resource definitions as kubeconform wants them: a file for each kind and version."""
    for definition in (one["spec"] for one in definitions.values()):
        group, kind = definition["group"].partition(".")[0], definition["names"]["kind"].lower()
        for version in definition["versions"]:
            schema = closed(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            (folder / f"{kind}-{group}-{version['name']}.json").write_text(json.dumps(schema))


def standalone(name: str, version: str) -> dict[str, Any]:
    """A schema of Kubernetes with everything that it refers to: kubeconform follows no reference to another file."""
    folder = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}-local-strict"
    text = (folder / name).read_text()
    known = _definitions(version)
    needed: dict[str, Any] = {}
    waiting = _REFERENCE.findall(text)
    while waiting:
        wanted = waiting.pop()
        if wanted not in needed:
            needed[wanted] = json.loads(_within(json.dumps(known[wanted])))
            waiting += _REFERENCE.findall(json.dumps(known[wanted]))
    return {**json.loads(_within(text)), "$id": f"kubernetes/{name}", "$defs": needed}


@functools.cache
def _definitions(version: str) -> dict[str, Any]:
    folder = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}-local-strict"
    found: dict[str, Any] = json.loads((folder / "_definitions.json").read_text())["$defs"]
    return found


def _within(text: str) -> str:
    return text.replace('"/api/_definitions.json#', '"#')


def write_kubernetes(manifests: str, version: str, folder: Path) -> None:
    """The schemas of the kinds that are there. A kind that Kubernetes does not know gets none: an error later."""
    for manifest in yaml.safe_load_all(manifests):
        group, _, api = str((manifest or {}).get("apiVersion", "")).rpartition("/")
        parts = [str((manifest or {}).get("kind")).lower(), group.partition(".")[0], api]
        name = "-".join(part for part in parts if part) + ".json"
        if (files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}-local-strict" / name).is_file():
            (folder / name).write_text(json.dumps(standalone(name, version)))


def conforms(manifests: str, version: str, custom: Path, folder: Path) -> list[str]:
    """What kubeconform says against the manifests. An unknown kind is an error; Strimzi's are judged by `strimzi`."""
    write_kubernetes(manifests, version, folder)
    places = ["-schema-location", f"{folder}/{_NAME}", "-schema-location", f"{custom}/{_NAME}"]
    skipped = ["-skip", ",".join(STRIMZI_KINDS)]
    command = [go_program(KUBECONFORM), "-strict", "-output", "json", *places, *skipped, "-"]
    done = subprocess.run(command, input=manifests, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout, done.stderr
    return [f"{one['kind']} {one['name']}: {one['msg']}" for one in json.loads(done.stdout).get("resources") or []]


def strimzi(manifests: list[dict[str, Any]], folder: Path) -> list[str]:
    """What TypeScript says against custom resources of Strimzi; its types are made of Strimzi's definitions.

    A field that the definition does not have is an error.
    """
    home = npm_packages("strimzi-1.0.1", STRIMZI)
    (folder / "node_modules").symlink_to(home / "node_modules")
    lines = [f'import {{ {", ".join(f"I{kind}" for kind in STRIMZI_KINDS)} }} from "{_types()}";']
    lines += [
        f"export const r{number}: I{manifest['kind']} = {json.dumps(manifest)};"
        for number, manifest in enumerate(manifests)
    ]
    source = folder / "resources.ts"
    source.write_text("\n".join(lines))
    options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--moduleResolution", "nodenext"]
    command = [need("node"), home / "node_modules" / "typescript" / "bin" / "tsc", *options, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=folder)
    return [line for line in done.stdout.splitlines() if "error TS" in line]


def _types() -> str:
    return STRIMZI[0].rpartition("@")[0] + "/kafka.strimzi.io/v1"
