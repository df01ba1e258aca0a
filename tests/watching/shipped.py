"""The dashboard and the rules as shipped, and the names and queries in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[2]
DASHBOARD = REPOSITORY / "config" / "grafana" / "dashboard.json"
ALERTS = REPOSITORY / "config" / "prometheus" / "alerts.yaml"
RECORDING = REPOSITORY / "config" / "prometheus" / "recording.yaml"
RULE_TESTS = Path(__file__).parent / "rules" / "alerts_test.yaml"

_NAME = re.compile(r"\bsfd[_:][a-z0-9_:]+")


def rules(path: Path) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def panel_queries() -> Iterator[tuple[str, str]]:
    """(panel, query) with the dashboard's variables set to all."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            yield f"{panel['title']} {target['refId']}", filled(target["expr"])


def filled(query: str) -> str:
    return re.sub(r"\$(group|topic|partition)\b", ".*", query).replace("$__rate_interval", "1m")


def names_in(query: str) -> set[str]:
    return set(_NAME.findall(query))
