"""What the chart makes for Prometheus and Grafana belongs to one release: its series, its thresholds, its dashboard."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.chart import CHART, helm, render
from tests.deploy.shipped import ALERTS, in_every_place, rule_tests, rules
from tests.deploy.test_chart import with_values
from tests.support.tools import need

RUNBOOKS = "https://git.example.com/sfd-stream/blob/main"
NUMBER = re.compile(r"> ([1-9]\d*(?:\.\d+)?|0\.\d+)")


def alerts_of(**changes: Any) -> dict[str, dict[str, Any]]:
    spec = render(with_values(**{"prometheusRule/enabled": True, **changes})).one("PrometheusRule")["spec"]
    return {rule["alert"]: rule for group in spec["groups"] for rule in group["rules"] if "alert" in rule}


def thresholds(alerts: dict[str, dict[str, Any]]) -> dict[str, float]:
    found = {name: NUMBER.findall(rule["expr"]) for name, rule in alerts.items()}
    assert all(len(numbers) <= 1 for numbers in found.values()), found
    return {name: float(numbers[0]) for name, numbers in found.items() if numbers}


def test_default_settings_give_the_thresholds_of_the_shipped_rules() -> None:
    shipped = thresholds({rule["alert"]: rule for rule in rules(ALERTS)})
    assert len(shipped) == 9
    assert thresholds(alerts_of()) == shipped


@pytest.mark.parametrize(
    ("changes", "alert", "expected"),
    [
        ({"settings/snapshot": {"topic": "s", "every_s": 3600}}, "SfdSnapshotTooOld", 10_800),
        ({"settings/snapshot": {"topic": "s", "every_s": 5}}, "SfdSnapshotTooOld", 1_800),
        ({"settings/snapshot": {"topic": "s", "every_s": 604_800}}, "SfdSnapshotTooOld", 1_814_400),
        ({"settings/checkpoint/every_s": 900}, "SfdCheckpointTooOld", 2_700),
        ({"settings/checkpoint/every_s": 1}, "SfdCheckpointTooOld", 300),
        ({"settings/http": {"stuck_after_s": 240.5}}, "SfdLoopNotTurning", 240.5),
        ({"settings/dead_letters": {"topic": "d", "max_share": 0.04}}, "SfdDeadLetterShare", 0.004),
        ({"prometheusRule/thresholds": {"SfdSnapshotTooOld": 60}}, "SfdSnapshotTooOld", 60),
        ({"prometheusRule/thresholds": {"SfdLagGrowing": 5_000_000}}, "SfdLagGrowing", 5_000_000),
        ({"prometheusRule/thresholds": {"SfdDeadLetterShare": 0.2}}, "SfdDeadLetterShare", 0.2),
        ({"prometheusRule/thresholds": {"SfdPartitionStuck": 600}}, "SfdPartitionStuck", 600),
    ],
)
def test_thresholds_follow_the_settings_and_can_be_overridden(
    changes: dict[str, Any], alert: str, expected: float
) -> None:
    others = {name: value for name, value in thresholds(alerts_of()).items() if name != alert}
    assert thresholds(alerts_of(**changes)) == {**others, alert: expected}


def test_snapshots_by_rows_alone_have_no_age_to_alert_on_unless_one_is_given() -> None:
    by_rows = {"settings/snapshot": {"topic": "s", "every_s": None, "every_rows": 1000}}
    assert "SfdSnapshotTooOld" not in alerts_of(**by_rows)
    given = alerts_of(**by_rows, **{"prometheusRule/thresholds": {"SfdSnapshotTooOld": 86_400}})
    assert thresholds(given)["SfdSnapshotTooOld"] == 86_400


def test_an_unknown_alert_is_refused() -> None:
    answer = render(with_values(**{"prometheusRule/thresholds": {"SfdSnapshotToOld": 1}}))
    assert not answer.ok
    assert "SfdSnapshotToOld is not allowed" in answer.said


def test_no_alert_names_a_runbook_unless_its_address_is_known() -> None:
    assert not any("runbook_url" in rule["annotations"] for rule in alerts_of().values())


@pytest.mark.parametrize(
    "changes",
    [
        {"runbookBaseUrl": RUNBOOKS},
        {"runbookBaseUrl": f"{RUNBOOKS}/"},
        {"prometheusRule/runbookPrefix": f"{RUNBOOKS}/"},  # its older name
    ],
)
def test_runbooks_become_addresses(changes: dict[str, Any]) -> None:
    for name, rule in alerts_of(**changes).items():
        assert rule["annotations"]["runbook_url"] == f"{RUNBOOKS}/docs/operations.md#{name.lower()}"


@pytest.mark.slow
def test_the_rules_of_a_release_fire_for_it_and_for_no_other(tmp_path: Path) -> None:
    """The shipped tests on the rendered rules: the release is group g on topic rows in namespace data."""
    values = with_values(
        **{
            "prometheusRule/enabled": True,
            "runbookBaseUrl": RUNBOOKS,
            "settings/kafka/group.id": "g",
            "settings/merge": {"topic": "merged.rows"},
            "settings/snapshot": {"topic": "s"},
            "settings/score": {"topic": "scores"},
        }
    )
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(render(values).one("PrometheusRule")["spec"]))
    own = {"cluster": "east", "namespace": "data"}
    tests = [
        in_every_place(test, ({**own}, {**own, "namespace": "other"}), firing=({**own},))
        for test in rule_tests()["tests"]
    ]
    # A Prometheus that adds no namespace has one release only.
    tests += rule_tests()["tests"]
    for test in tests:
        for alert in (alert for one in test["alert_rule_test"] for alert in one["exp_alerts"]):
            path = alert["exp_annotations"]["runbook_url"]
            alert["exp_annotations"]["runbook_url"] = f"{RUNBOOKS}/{path}"
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump({**rule_tests(), "rule_files": ["rules.yaml"], "tests": tests}))
    done = subprocess.run([need("promtool"), "test", "rules", str(file)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_hold_for_the_merge_of_the_release_too() -> None:
    spec = render(with_values(**{"prometheusRule/enabled": True, "settings/merge": {"topic": "merged.rows"}})).one(
        "PrometheusRule"
    )["spec"]
    for rule in (rule for group in spec["groups"] for rule in group["rules"]):
        selectors = re.findall(r"sfd[_:][a-z0-9_:]+(\{[^}]*\})?", rule["expr"])
        assert set(selectors) == {r'{namespace=~"data|",group="sketch",topic=~"rows|merged\\.rows"}'}


@pytest.mark.parametrize(
    ("score", "groups"),
    [({"topic": "s"}, "sketch|sketch-score"), ({"topic": "s", "group": "of.its.own"}, r"sketch|of\\.its\\.own")],
)
def test_the_rules_hold_for_the_scorers_of_the_release_too(score: dict[str, str], groups: str) -> None:
    for rule in alerts_of(**{"settings/snapshot": {"topic": "x"}, "settings/score": score}).values():
        selectors = re.findall(r"sfd[_:][a-z0-9_:]+(\{[^}]*\})?", rule["expr"])
        assert set(selectors) == {f'{{namespace=~"data|",group=~"{groups}",topic=~"rows"}}'}


def dashboard_of(release: str, namespace: str) -> tuple[str, dict[str, Any]]:
    answer = helm(
        "template", release, str(CHART), "--namespace", namespace, values=with_values(**{"dashboard/enabled": True})
    )
    ((file, text),) = answer.one("ConfigMap", "-dashboard")["data"].items()
    return file, json.loads(text)


def test_two_releases_have_two_dashboards() -> None:
    """Grafana refuses a second dashboard of one uid or title, and its sidecar overwrites a file of the same name."""
    made = [dashboard_of(*release) for release in (("a", "data"), ("b", "data"), ("a", "other"))]
    assert len({file for file, _ in made}) == 3
    assert len({dashboard["title"] for _, dashboard in made}) == 3
    uids = {dashboard["uid"] for _, dashboard in made}
    assert len(uids) == 3
    assert all(re.fullmatch("[a-z0-9-]{1,40}", uid) for uid in uids)
    assert dashboard_of("a", "data") == made[0], "an upgrade keeps it"


def test_the_dashboard_of_a_release_opens_on_its_own_series() -> None:
    _, dashboard = dashboard_of("a", "data")
    chosen = {
        variable["name"]: variable.get("current", {}).get("value") for variable in dashboard["templating"]["list"]
    }
    assert chosen == {
        "datasource": None, "cluster": "$__all", "namespace": ["data"], "group": ["sketch"], "topic": "$__all",
        "partition": "$__all",
    }  # fmt: skip
    shipped = json.loads((CHART / "files" / "dashboard.json").read_text())
    assert dashboard["panels"] == shipped["panels"]
