"""`sfd-stream metrics`: prints the table of all metrics."""

# Annotations are evaluated: typer reads them.
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sfd_stream.cli.options import JsonOption

if TYPE_CHECKING:
    from sfd_stream.observe.metrics import Metric


def metrics(as_json: JsonOption = False) -> None:
    """Print the table of all metrics, as Markdown.

    Example: sfd-stream metrics > metrics.md
    """
    from dataclasses import asdict

    from sfd_stream.cli.output import print_json, print_text
    from sfd_stream.observe.metrics import declared

    if as_json:
        print_json({"metrics": [asdict(metric) for metric in (*declared(), *declared("merge"), *declared("score"))]})
    else:
        print_text(markdown().rstrip("\n"))


def markdown() -> str:
    """`docs/reference/metrics.md`."""
    from sfd_stream.observe.metrics import MERGE_WORKER, OF_ANY_PROCESS, SCORE_WORKER, WORKER_LABELS, declared

    workers, merges, scores = declared(), declared("merge"), declared("score")
    labels = ", ".join(f"`{label}`" for label in WORKER_LABELS)
    shared = ", ".join(f"`{metric.name}`" for metric in OF_ANY_PROCESS)
    lines = [
        "# Metrics",
        "",
        "Made by `sfd-stream metrics` from `sfd_stream/observe/metrics.py`; a test fails when it is out of date.",
        f"Every series also has the labels {labels}.",
        "",
        *_table(workers),
    ]
    for worker, topic, found in ((MERGE_WORKER, "publishes to", merges), (SCORE_WORKER, "reads", scores)):
        about = f'Their `worker` is "{worker}", their `topic` the one that it {topic}. It also exports {shared}.'
        lines += ["", f"## Of `sfd-stream {worker}`", "", about, "", *_table(found)]
    every = (*workers, *merges, *scores)
    lines += ["", "## Labels with a fixed set of values", ""]
    lines += [f"- `{m.name}`: {', '.join(f'`{value}`' for value in m.values)}" for m in every if m.values]
    lines += ["", "## Buckets of histograms, in their unit", ""]
    lines += [f"- `{m.name}`: {', '.join(f'{edge:g}' for edge in m.buckets)}" for m in every if m.buckets]
    return "\n".join(lines) + "\n"


def _table(metrics: "Iterable[Metric]") -> list[str]:
    lines = ["| name | kind | unit | labels | meaning |", "|---|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        help_text = metric.help.replace("|", "\\|")
        lines.append(f"| `{metric.name}` | {metric.kind} | {metric.unit} | {labels} | {help_text} |")
    return lines
