"""docs/guides/deploying.md says what is so: its values render and load, its sizes are the worker's own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sfd_stream.cli.build import shape_of
from sfd_stream.config import load
from tests.deploy.chart import ROOT, render

PAGE = (ROOT / "docs" / "guides" / "deploying.md").read_text()


def block(marker: str) -> str:
    """The fenced block after `<!-- marker -->`."""
    found = re.search(rf"<!-- {marker} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert found, marker
    return found[1]


def test_the_least_values_are_enough(tmp_path: Path) -> None:
    answer = render(yaml.safe_load(block("values")))
    file = tmp_path / "settings.yaml"
    file.write_text(answer.one("ConfigMap", "sfd-stream")["data"]["settings.yaml"])
    assert load(file, environ={}).settings.input.topic == "clicks"


def test_the_login_by_a_function_is_taken_by_the_chart_and_the_program(tmp_path: Path) -> None:
    values, login = yaml.safe_load(block("values")), yaml.safe_load(block("settings msk"))
    values["settings"] |= login | {"kafka": values["settings"]["kafka"] | login["kafka"]}
    file = tmp_path / "settings.yaml"
    file.write_text(render(values).one("ConfigMap", "sfd-stream")["data"]["settings.yaml"])
    assert load(file, environ={}).settings.kafka["sasl.oauthbearer.config"] == "eu-central-1"


def test_the_sizes_are_what_the_worker_reckons_with() -> None:
    table = PAGE.partition("<!-- sizes -->")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|", table, re.MULTILINE)
    assert len(rows) == 5
    for d, ell, mib in ([int(cell.replace(",", "")) for cell in row] for row in rows):
        given = ["kafka.bootstrap.servers=b:1", "kafka.group.id=g", "input.topic=t", "checkpoint.url=memory://x"]
        settings = load(None, environ={}, overrides=[*given, f"sketch.d={d}", f"sketch.ell={ell}"]).settings
        assert round(shape_of(settings, 0).memory_bytes() / 2**20) == mib, (d, ell)


@pytest.mark.parametrize("store", ["s3", "gcs", "azure"])
def test_the_policies_are_whole_and_narrowed_to_the_prefix(store: str) -> None:
    policy: dict[str, Any] = json.loads(block(f"policy {store}"))
    assert "clicks/" in json.dumps(policy)


def test_every_file_that_it_points_to_is_there() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE):
        assert (ROOT / "docs" / "guides" / target).exists(), target


def test_the_run_on_a_real_api_server_that_is_shown_was_a_good_one() -> None:
    """Written by `python -m tests.deploy.k8s.record`."""
    shown = re.search(r"<!-- capture k8s -->\n```console\n(.*?)\n```\n<!-- end -->", PAGE, re.DOTALL)
    assert shown, "no run: python -m tests.deploy.k8s.record"
    assert re.search(r"^(\d+) of \1 passed in \d+ s$", shown[1], re.MULTILINE)
    for words in ("dry run", "installed upgraded rolled back uninstalled", "the budget refuses"):
        assert words in shown[1]


def test_the_rolling_update_that_is_shown_replayed_nothing() -> None:
    """Written by `python -m benchmarks.rolling --paste`."""
    table = PAGE.partition("<!-- bench:rolling -->")[2].partition("<!-- /bench:rolling -->")[0]
    runs = re.findall(r"^\| [\d,]+ \|.*$", table, re.MULTILINE)
    assert runs, "no table: python -m benchmarks.rolling --paste"
    assert all(re.search(r"\| 0 of [\d,]+ \|", run) for run in runs)
