"""docs/examples/compose.yaml is right in what it mounts, sets and runs. Its images are not needed for that."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

import sfd_stream
from sfd_stream.cli.app import _app
from sfd_stream.config import Settings, load
from sfd_stream.tools.topics import wanted_topics
from tests.docs.pages import ROOT
from tests.support.kafka_home import VERSION as KAFKA_VERSION
from tests.support.tools import GRAFANA_VERSION, need

FILE = ROOT / "docs" / "examples" / "compose.yaml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "sfd-stream" in service["image"]}
CONTENTS = {name: yaml.safe_load(config["content"]) for name, config in COMPOSE["configs"].items()}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    file = tmp_path / "settings.yaml"
    file.write_text(COMPOSE["configs"]["settings"]["content"], encoding="utf-8")
    return load(file, environ={}).settings


def mounts() -> list[tuple[str, str, str]]:
    """(service, source, target) of each volume."""
    volumes = [(name, volume) for name, service in SERVICES.items() for volume in service.get("volumes", [])]
    return [(name, *volume.split(":")[:2]) for name, volume in volumes]


def test_each_part_is_there_and_the_worker_twice() -> None:
    assert {"kafka", "producer", "worker", "prometheus", "grafana"} <= set(SERVICES)
    assert SERVICES["worker"]["deploy"]["replicas"] == 2


def test_what_is_mounted_exists_and_what_is_named_is_declared() -> None:
    for _, source, _ in mounts():
        assert source in COMPOSE["volumes"] or (FILE.parent / source).resolve().is_dir(), source
    for service in SERVICES.values():
        assert {config["source"] for config in service.get("configs", [])} <= set(COMPOSE["configs"])
        assert set(service.get("depends_on", {})) <= set(SERVICES)


def test_no_value_is_taken_for_a_variable_but_the_image() -> None:
    """Compose replaces what follows a dollar sign, also inside of configs."""
    assert set(re.findall(r"\$\{?\w+", FILE.read_text(encoding="utf-8"))) == {"${SFD_IMAGE"}


def test_ports_are_bound_to_this_machine() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_images_are_of_the_versions_that_the_project_is_tested_with() -> None:
    assert {service["image"] for service in OURS.values()} == {f"${{SFD_IMAGE:-sfd-stream:{sfd_stream.__version__}}}"}
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{KAFKA_VERSION}"
    assert SERVICES["grafana"]["image"] == f"grafana/grafana:{GRAFANA_VERSION}"


def test_the_program_accepts_the_settings_and_reaches_kafka_by_them(settings: Settings) -> None:
    address = settings.kafka["bootstrap.servers"]
    assert f"INSIDE://{address}," in SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert ("worker", "checkpoints", settings.checkpoint.url.removeprefix("file://")) in mounts()
    assert settings.http.host == "0.0.0.0", "Prometheus asks from another container"  # noqa: S104
    for service in (SERVICES["worker"], SERVICES["producer"], SERVICES["topics"]):
        assert service["environment"]["SFD_CONFIG"] == service["configs"][0]["target"]
    assert [topic.name for topic in wanted_topics(settings, 4)] == ["rows", "sketches", "rows-dead"]


@pytest.mark.parametrize("name", [name for name, service in OURS.items() if "command" in service])
def test_commands_parse(name: str) -> None:
    command, *words = SERVICES[name]["command"]
    known: Any = typer.main.get_command(_app())
    assert known.commands[command].make_context(command, words).params


def test_the_producer_makes_rows_as_wide_as_the_sketch(settings: Settings) -> None:
    words = SERVICES["producer"]["command"]
    assert words[words.index("--synthetic") + 1].split(",")[1] == str(settings.sketch.d)


def test_prometheus_scrapes_the_workers_and_loads_the_shipped_rules(settings: Settings) -> None:
    (job,) = CONTENTS["prometheus"]["scrape_configs"]
    (workers,) = job["dns_sd_configs"]
    assert (workers["names"], workers["port"]) == (["worker"], settings.http.port)
    (pattern,) = CONTENTS["prometheus"]["rule_files"]
    targets = {source: target for name, source, target in mounts() if name == "prometheus"}
    assert pattern == f"{targets['../../config/prometheus']}/*.yaml"


def test_prometheus_own_check_accepts_its_configuration(tmp_path: Path) -> None:
    file, text = tmp_path / "prometheus.yml", COMPOSE["configs"]["prometheus"]["content"]
    file.write_text(text.replace("/etc/prometheus/rules", str(ROOT / "config" / "prometheus")), encoding="utf-8")
    done = subprocess.run([need("promtool"), "check", "config", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rules found" in done.stdout


def test_grafana_shows_the_shipped_dashboard_from_this_prometheus() -> None:
    targets = {source: target for name, source, target in mounts() if name == "grafana"}
    folder = targets["../../config/grafana"]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert json.loads((ROOT / "config" / "grafana" / home.removeprefix(f"{folder}/")).read_text())["title"]
    assert CONTENTS["grafana-dashboards"]["providers"][0]["options"]["path"] == folder
    (source,) = CONTENTS["grafana-datasource"]["datasources"]
    assert (source["url"], source["isDefault"]) == ("http://prometheus:9090", True)
