"""The dashboard and the rules as shipped, and the names and queries in them."""

from __future__ import annotations

import copy
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
    return re.sub(r"\$(cluster|namespace|group|topic|partition)\b", ".*", query).replace("$__rate_interval", "1m")


def names_in(query: str) -> set[str]:
    return set(_NAME.findall(query))


PLACES: tuple[dict[str, str], ...] = (
    {"cluster": "east", "namespace": "a"},
    {"cluster": "east", "namespace": "b"},
    {"cluster": "west", "namespace": "a"},
)


def rule_tests() -> dict[str, Any]:
    """The tests of the alerts for promtool. All values are texts: 0x60 is no number here."""
    found: dict[str, Any] = yaml.load(RULE_TESTS.read_text(), yaml.BaseLoader)  # noqa: S506 - makes texts only
    return found


def in_every_place(
    test: dict[str, Any], places: tuple[dict[str, str], ...] = PLACES, firing: tuple[dict[str, str], ...] | None = None
) -> dict[str, Any]:
    """The promtool test with each series for every place, and each expected alert for every place that fires."""
    made = copy.deepcopy(test)
    made["input_series"] = [
        {**one, "series": one["series"].replace("{", "{" + "".join(f'{k}="{v}",' for k, v in place.items()), 1)}
        for place in places
        for one in test["input_series"]
    ]
    for checked in made["alert_rule_test"]:
        checked["exp_alerts"] = [
            {**alert, "exp_labels": {**alert["exp_labels"], **place}}
            for place in (places if firing is None else firing)
            for alert in checked["exp_alerts"]
        ]
    return made
