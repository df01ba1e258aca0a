"""`sfd-stream metrics`: the table of docs/reference/metrics.md, from the metrics' own declarations."""

from __future__ import annotations

import json

import pytest

from sfd_stream.cli.commands.metrics import metrics
from sfd_stream.observe.metrics import declared


def test_every_declared_metric_of_every_program_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    metrics(as_json=True)
    printed = json.loads(capsys.readouterr().out)["metrics"]
    assert len(printed) == len([*declared(), *declared("merge"), *declared("score")])
    metrics(as_json=False)
    table = capsys.readouterr().out
    assert all(metric["name"] in table for metric in printed)
