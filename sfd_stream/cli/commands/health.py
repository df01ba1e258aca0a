"""`sfd-stream health`: checks that a worker is alive, for a container's health check and for `helm test`."""

# Annotations are evaluated: typer reads them.
import time
from http.client import HTTPException
from typing import Annotated

import typer

from sfd_stream.cli.options import ConfigOption, JsonOption, SetOption

_AGAIN_S = 1.0
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where it listens, not where we do


def health(
    config: ConfigOption = None,
    overrides: SetOption = None,
    *,
    ready: Annotated[
        bool, typer.Option("--ready", help="Check readiness (all partitions restored) instead of liveness.")
    ] = False,
    timeout_s: Annotated[float, typer.Option(help="Maximum time for one request.", min=0.1)] = 4.0,
    wait_s: Annotated[
        float, typer.Option("--wait-s", help="Retry for up to this many seconds until the check passes.", min=0)
    ] = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Check the health of a running worker, merge service or scorer: exit 0 if it is healthy, 1 if not.

    Example: [bold]sfd-stream health --config settings.yaml[/bold]

    A worker elsewhere: [bold]sfd-stream health --ready --wait-s 60 --set http.host=sketch-sfd-stream[/bold]
    """
    from sfd_stream.cli.output import print_json, print_text

    url = f"http://{_address(config, overrides)}/{'readyz' if ready else 'healthz'}"
    until = time.monotonic() + wait_s
    well, words = _ask(url, timeout_s)
    while not well and time.monotonic() < until:
        time.sleep(_AGAIN_S)
        well, words = _ask(url, timeout_s)
    if as_json:
        print_json({"well": well, "says": words})
    else:
        print_text(words)
    if not well:
        raise typer.Exit(1)


def _ask(url: str, timeout_s: float) -> tuple[bool, str]:
    """Whether the check passes, and the text of the response."""
    import urllib.request
    from urllib.error import HTTPError

    # Directly to the port, even if the environment names a proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout_s) as answer:
            return True, answer.read(4096).decode(errors="replace").strip() or "well"
    except HTTPError as error:
        with error:
            return False, f"{url} answered {error.code}: {error.read(4096).decode(errors='replace').strip()}"
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        return False, f"{url} does not answer ({reason}); is a worker running, with this http.host and http.port?"


def _address(config: ConfigOption, overrides: SetOption) -> str:
    import os

    from sfd_stream.config.load import load_http

    http = load_http(config, environ=os.environ, overrides=overrides or ())
    host = _ANY_ADDRESS.get(http.host, http.host)
    return f"[{host}]:{http.port}" if ":" in host else f"{host}:{http.port}"
