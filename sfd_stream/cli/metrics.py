"""`sfd-stream metrics`: what is exported, as a table."""


def metrics() -> None:
    """Print the table of all metrics, as in docs/metrics.md.

    Example: sfd-stream metrics > docs/metrics.md
    """
    from sfd_stream.cli.output import print_text
    from sfd_stream.service.metrics import markdown

    print_text(markdown().rstrip("\n"))
