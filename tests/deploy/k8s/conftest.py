"""One control plane for all tests here, with the operators' definitions and the namespaces that a platform team has."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest

from tests.deploy.definitions import fetch_definitions
from tests.support.cluster import Cluster
from tests.support.control_plane import NoControlPlaneError, control_plane

_REASON = "no control plane"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    without = [report for report in terminalreporter.stats.get("skipped", []) if _REASON in str(report.longrepr)]
    if without:
        reason = str(without[0].longrepr).partition(_REASON + ": ")[2].rstrip("')")
        terminalreporter.write_line(
            f"{len(without)} tests need a control plane and were skipped: {reason}", yellow=True
        )


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    try:
        programs = control_plane()
    except NoControlPlaneError as error:
        pytest.skip(f"{_REASON}: {error}")
    with Cluster.start(programs) as cluster:
        for definition in fetch_definitions().values():
            cluster.kubectl("apply", "--server-side", "-f", "-", given=json.dumps(definition))
        cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        for name, value in (("streaming", 1000), ("low", 10)):  # what ci/everything-values.yaml names
            cluster.kubectl("create", "priorityclass", name, f"--value={value}")
        yield cluster


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace that lets in only pods that are locked down."""
    name = f"ns-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    cluster.wait_for(lambda: bool(cluster.get("serviceaccounts", "-n", name)["items"]), "its service account")
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")
