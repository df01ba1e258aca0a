"""What is shipped for Prometheus and Grafana fits what is exported; each alert has its test and its runbook."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml

from sfd_stream.service.metrics import declared
from tests.parts.tools import grafana_types, need
from tests.watching.shipped import (
    ALERTS,
    DASHBOARD,
    RECORDING,
    REPOSITORY,
    RULE_TESTS,
    dashboard,
    names_in,
    panel_queries,
    rules,
)

WORKER = re.compile(r"\bworker\b")
EXPORTED = {name for metric in declared() for name in metric.series}


def test_every_metric_named_in_rules_and_dashboard_is_exported_or_recorded() -> None:
    recorded = {rule["record"] for rule in rules(RECORDING)}
    queries = dict(panel_queries()) | {rule.get("alert", rule.get("record")): rule["expr"] for rule in rules(ALERTS)}
    queries |= {variable["name"]: variable["query"]["query"] for variable in dashboard()["templating"]["list"][1:]}
    for where, query in queries.items():
        assert names_in(query), where
        assert names_in(query) <= EXPORTED | recorded, where
    for rule in rules(RECORDING):
        assert names_in(rule["expr"]) <= EXPORTED, rule["record"]


def test_every_metric_is_on_the_dashboard() -> None:
    shown = set().union(*(names_in(query) for _, query in panel_queries()))
    missing = {metric.name for metric in declared() if not shown & set(metric.series)}
    assert missing <= {"sfd_messages_total"}, "in the share of dead letters, by the rules"


def test_what_is_shown_by_worker_is_shown_by_pod_too() -> None:
    """In Kubernetes every pod's only worker is number 1."""
    targets = [target for panel in dashboard()["panels"] for target in panel.get("targets", [])]
    named = [text for target in targets for text in (target["expr"], target["legendFormat"]) if WORKER.search(text)]
    assert len(named) > 3
    assert all("instance" in text for text in named), named


def test_every_alert_has_a_runbook_and_says_where() -> None:
    headings = {
        line.lstrip("#").strip().lower()
        for line in (REPOSITORY / "docs" / "operations.md").read_text().splitlines()
        if line.startswith("#")
    }
    for rule in rules(ALERTS):
        path, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert path == "docs/operations.md"
        assert anchor == rule["alert"].lower()
        assert anchor in headings, f"docs/operations.md has no heading {rule['alert']}"


def test_every_alert_is_tested_where_it_fires_and_where_it_does_not() -> None:
    tests = yaml.safe_load(RULE_TESTS.read_text())["tests"]
    outcomes = {(one["alertname"], bool(one["exp_alerts"])) for test in tests for one in test["alert_rule_test"]}
    assert outcomes == {(rule["alert"], fires) for rule in rules(ALERTS) for fires in (True, False)}


def test_alerts_fire_when_they_should_and_only_then() -> None:
    done = subprocess.run(
        [need("promtool"), "test", "rules", str(RULE_TESTS)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_rules_and_every_panels_query(tmp_path: Path) -> None:
    promtool = need("promtool")
    wrapped = [{"record": f"panel:{i}", "expr": query} for i, (_, query) in enumerate(panel_queries())]
    panels = tmp_path / "panels.yaml"
    panels.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": wrapped}]}))
    command = [promtool, "check", "rules", str(ALERTS), str(RECORDING), str(panels)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_is_what_grafanas_types_say_it_must_be(tmp_path: Path) -> None:
    types = grafana_types()
    source = tmp_path / "dashboard.ts"
    head = 'import type { Dashboard } from "@grafana/schema";\nexport const dashboard: Dashboard = '
    (tmp_path / "node_modules").symlink_to(types / "node_modules")
    tsc = [str(types / "node_modules" / ".bin" / "tsc"), "--noEmit", "--strict", "--skipLibCheck", "--preserveSymlinks"]
    tsc += ["--moduleResolution", "bundler", "--module", "esnext", "--target", "es2022", str(source)]
    for text, right in ((DASHBOARD.read_text(), True), (DASHBOARD.read_text().replace('"query",', '"querry",'), False)):
        source.write_text(f"{head}{text};\n")
        done = subprocess.run(tsc, check=False, capture_output=True, text=True, cwd=tmp_path)
        assert (done.returncode == 0) == right, done.stdout


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
