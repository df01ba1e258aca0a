"""`sfd-stream metrics`: what is exported, as a table."""

# Annotations are evaluated: typer reads them.
from sfd_stream.cli.options import JsonOption


def metrics(as_json: JsonOption = False) -> None:
    """Print the table of all metrics, as Markdown.

    Example: sfd-stream metrics > metrics.md
    """
    from dataclasses import asdict

    from sfd_stream.cli.output import print_json, print_text
    from sfd_stream.observe.metrics import declared, markdown

    if as_json:
        print_json({"metrics": [asdict(metric) for metric in (*declared(), *declared("merge"), *declared("score"))]})
    else:
        print_text(markdown().rstrip("\n"))
