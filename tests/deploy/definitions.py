"""The custom resources that the chart may make, as the operators themselves define them: from their Go modules."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

CUSTOM = {"PodMonitor", "ServiceMonitor", "PrometheusRule", "ScaledObject"}
MODULES = {
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": "example/prometheus-operator-crd",
    "github.com/kedacore/keda/v2@v2.21.0": "config/crd/bases",
}


class _Loader(yaml.SafeLoader):
    """YAML 1.1 gives a lone = a meaning that nobody uses; in a list of operators it is a text."""


_Loader.add_constructor("tag:yaml.org,2002:value", yaml.SafeLoader.construct_yaml_str)


def fetch_definitions() -> dict[str, dict[str, Any]]:
    """By kind, what the operators install. Needs Go."""
    command = ["go", "mod", "download", "-json", *MODULES]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", timeout=300)
    assert answer.returncode == 0, answer.stderr + answer.stdout
    folders = {f"{m['Path']}@{m['Version']}": Path(m["Dir"]) for m in _json_values(answer.stdout)}
    files = [
        file
        for module, below in MODULES.items()
        for kind in CUSTOM
        for file in (folders[module] / below).glob(f"*_{kind.lower()}s.yaml")
    ]
    found = [part for file in files for part in yaml.load_all(file.read_text(), _Loader) if part]
    return {definition["spec"]["names"]["kind"]: definition for definition in found}


def _json_values(text: str) -> list[dict[str, Any]]:
    decoder, at, found = json.JSONDecoder(), 0, []
    while text[at:].strip():
        value, at = decoder.raw_decode(text, at + len(text[at:]) - len(text[at:].lstrip()))
        found.append(value)
    return found
