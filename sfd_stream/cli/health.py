"""`sfd-stream health`: is the worker on this machine alive? For a container's health check."""

# Annotations are evaluated: typer reads them.
from http.client import HTTPException
from typing import Annotated

import typer

from sfd_stream.cli.options import ConfigOption, SetOption

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where it listens, not where we do


def health(
    config: ConfigOption = None,
    overrides: SetOption = None,
    *,
    ready: Annotated[
        bool, typer.Option("--ready", help="Ask whether its partitions are restored, not only whether it turns.")
    ] = False,
    timeout_s: Annotated[float, typer.Option(help="How long to wait for an answer.", min=0.1)] = 4.0,
) -> None:
    """Ask the worker's own port whether it is well: exit 0 if so, 1 if not.

    Example: [bold]sfd-stream health --config config/local.yaml[/bold]
    """
    import urllib.request
    from urllib.error import HTTPError

    from sfd_stream.cli.output import print_text

    url = f"http://{_address(config, overrides)}/{'readyz' if ready else 'healthz'}"
    # Straight to the port, whatever proxy the environment names.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout_s) as answer:
            print_text(answer.read(4096).decode(errors="replace").strip() or "well")
    except HTTPError as error:
        with error:
            print_text(f"{url} says {error.code}: {error.read(4096).decode(errors='replace').strip()}")
        raise typer.Exit(1) from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        print_text(f"{url} does not answer ({reason}); is a worker running, with this http.host and http.port?")
        raise typer.Exit(1) from None


def _address(config: ConfigOption, overrides: SetOption) -> str:
    import os

    from sfd_stream.config.load import load_http

    http = load_http(config, environ=os.environ, overrides=overrides or ())
    host = _ANY_ADDRESS.get(http.host, http.host)
    return f"[{host}]:{http.port}" if ":" in host else f"{host}:{http.port}"
