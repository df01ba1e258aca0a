"""The chart as tests see it: rendered by a real helm; and the parts of it that are copies, made fresh by

    python -m tests.deploy.chart      (make chart)

A chart can't read outside itself: the program's settings in values.schema.json, its patterns of secrets, the alerts and
the dashboard are copies, and a test says when one is stale.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sfd_stream import __version__
from sfd_stream.config import secrets
from sfd_stream.config.describe import schema
from tests.deploy.values_table import readme

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "sfd-stream"
GOLDEN = Path(__file__).parent / "golden"
COPIES = {
    CHART / "files" / "dashboard.json": ROOT / "config" / "grafana" / "dashboard.json",
    CHART / "files" / "alerts.yaml": ROOT / "config" / "prometheus" / "alerts.yaml",
    CHART / "files" / "recording.yaml": ROOT / "config" / "prometheus" / "recording.yaml",
}


class Strict(yaml.SafeLoader):
    """Refuses a key that occurs twice, as an API server with strict validation does; helm and PyYAML take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        assert not twice, f"{sorted(twice)} twice in one map, line {node.start_mark.line}"
        return super().construct_mapping(node, deep)


@dataclass(frozen=True)
class Answer:
    ok: bool
    out: str
    said: str

    def manifests(self) -> list[dict[str, Any]]:
        assert self.ok, self.said
        return [manifest for manifest in yaml.load_all(self.out, Strict) if manifest]

    def one(self, kind: str, ending: str = "") -> dict[str, Any]:
        found = [m for m in self.manifests() if m["kind"] == kind and m["metadata"]["name"].endswith(ending)]
        assert len(found) == 1, f"{len(found)} manifests of kind {kind}"
        return found[0]

    def kinds(self) -> set[str]:
        return {str(manifest["kind"]) for manifest in self.manifests()}


def helm(*arguments: str, values: Mapping[str, Any]) -> Answer:
    """A real helm, with the values on its standard input."""
    return _helm(arguments, json.dumps(values))


@functools.cache  # the same manifests are looked at by many tests
def _helm(arguments: tuple[str, ...], given: str) -> Answer:
    command = [str(Path(sys.executable).parent / "helm"), *arguments, "--values", "-"]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=60)
    return Answer(done.returncode == 0, done.stdout, done.stderr)


def render(values: Mapping[str, Any], *arguments: str) -> Answer:
    return helm("template", "sketch", str(CHART), "--namespace", "data", *arguments, values=values)


def values_file(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text())
    return found


def fresh_schema() -> dict[str, Any]:
    """values.schema.json with the program's own schema under `settings`.

    What is required is left to the chart's checks, which say why.
    """
    written: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
    program = _without(schema(), {"title", "required", "examples", "$schema"})
    written["$defs"] = program.pop("$defs")
    written["properties"]["settings"] = program
    return written


def _without(node: Any, names: set[str]) -> Any:
    if isinstance(node, dict):
        # Below "properties" keys are names of settings, whatever they are called.
        return {
            key: {k: _without(v, names) for k, v in value.items()} if key == "properties" else _without(value, names)
            for key, value in node.items()
            if key not in names
        }
    return [_without(item, names) for item in node] if isinstance(node, list) else node


def fresh_secrets() -> str:
    """The program's patterns of secrets, as Go reads them."""

    def go(pattern: re.Pattern[str]) -> str:
        flags = ("i" if pattern.flags & re.IGNORECASE else "") + ("s" if pattern.flags & re.DOTALL else "")
        return (f"(?{flags})" if flags else "") + pattern.pattern.replace(r"\Z", r"\z")

    found = {
        "name": go(secrets.SECRET_NAME),
        "about": go(secrets.ABOUT_A_SECRET),
        "texts": [go(pattern) for pattern, _ in secrets.SECRET_TEXTS],
    }
    head = "# What the program takes for a secret: sfd_stream/config/secrets.py, copied by `make chart`.\n"
    return head + yaml.safe_dump(found, sort_keys=False, width=200)


def fresh_chart() -> str:
    """Chart.yaml with the program's version, for chart and program alike."""
    written = (CHART / "Chart.yaml").read_text()
    return re.sub(r"^(version|appVersion): .*$", rf"\1: {__version__}", written, flags=re.MULTILINE)


def fresh_readme() -> str:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    smallest = (CHART / "ci" / "smallest-values.yaml").read_text()
    return readme(chart, smallest, (CHART / "values.yaml").read_text())


def refresh() -> None:
    (CHART / "Chart.yaml").write_text(fresh_chart())
    (CHART / "README.md").write_text(fresh_readme())
    (CHART / "values.schema.json").write_text(json.dumps(fresh_schema(), indent=2) + "\n")
    (CHART / "files" / "secrets.yaml").write_text(fresh_secrets())
    for copy, original in COPIES.items():
        copy.write_bytes(original.read_bytes())
    for name in ("smallest", "everything"):
        GOLDEN.mkdir(exist_ok=True)
        (GOLDEN / f"{name}.yaml").write_text(render(values_file(name)).out)


if __name__ == "__main__":
    refresh()
