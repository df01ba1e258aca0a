"""What is shipped for Prometheus and Grafana fits what is exported; each alert has its test and its runbook."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sfd_stream.observe.metrics import declared
from tests.deploy.shipped import (
    ALERTS,
    DASHBOARD,
    PLACES,
    RECORDING,
    REPOSITORY,
    RULE_TESTS,
    dashboard,
    in_every_place,
    names_in,
    panel_queries,
    rule_tests,
    rules,
)
from tests.support.tools import grafana_types, need

WORKER = re.compile(r"\bworker\b")
EXPORTED = {name for metric in declared() for name in metric.series}
BY_SCORERS = {name for metric in declared("score") for name in metric.series}


def test_every_metric_named_in_rules_and_dashboard_is_exported_or_recorded() -> None:
    recorded = {rule["record"] for rule in rules(RECORDING)}
    queries = dict(panel_queries()) | {rule.get("alert", rule.get("record")): rule["expr"] for rule in rules(ALERTS)}
    queries |= {variable["name"]: variable["query"]["query"] for variable in dashboard()["templating"]["list"][1:]}
    for where, query in queries.items():
        assert names_in(query), where
        assert names_in(query) <= EXPORTED | BY_SCORERS | recorded, where
    for rule in rules(RECORDING):
        assert names_in(rule["expr"]) <= EXPORTED, rule["record"]


def test_every_metric_is_on_the_dashboard() -> None:
    shown = set().union(*(names_in(query) for _, query in panel_queries()))
    missing = {metric.name for metric in (*declared(), *declared("score")) if not shown & set(metric.series)}
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


def lag_in_every_place() -> dict[str, Any]:
    """Each release has a lag of 6,000: no sum is over two of them."""
    series = 'sfd_lag_messages{group="g",topic="rows",partition="%s"}'
    test = in_every_place(
        {
            "interval": "1m",
            "input_series": [{"series": series % part, "values": "3000x5"} for part in (0, 1)],
            "alert_rule_test": [],
        }
    )
    places = [", ".join(f'{k}="{v}"' for k, v in place.items()) for place in PLACES]
    expected = [{"labels": f'sfd:lag:sum{{{place}, group="g", topic="rows"}}', "value": 6000} for place in places]
    return {**test, "promql_expr_test": [{"expr": "sfd:lag:sum", "eval_time": "5m", "exp_samples": expected}]}


@pytest.mark.slow
def test_releases_in_other_namespaces_and_clusters_are_kept_apart(tmp_path: Path) -> None:
    """Two releases of one group and topic: nothing is added up, and each alert names its own namespace and cluster."""
    shipped = rule_tests()
    tests = [*(in_every_place(test) for test in shipped["tests"]), lag_in_every_place()]
    file = tmp_path / "places_test.yaml"
    file.write_text(yaml.safe_dump({**shipped, "rule_files": [str(RECORDING), str(ALERTS)], "tests": tests}))
    done = subprocess.run([need("promtool"), "test", "rules", str(file)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_panel_can_be_narrowed_to_a_cluster_and_a_namespace() -> None:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            selectors = re.findall(r"\{([^}]*)\}", target["expr"])
            assert selectors, panel["title"]
            for selector in selectors:
                assert 'cluster=~"$cluster", namespace=~"$namespace"' in selector, panel["title"]
    names = [variable["name"] for variable in dashboard()["templating"]["list"]]
    assert names == ["datasource", "cluster", "namespace", "group", "topic", "partition"]


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
