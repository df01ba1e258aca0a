"""`sfd-stream doctor`: checks whether a worker with these settings can run here."""

# Annotations are evaluated: typer reads them.
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from sfd_stream.cli.options import ConfigOption, JsonOption, SetOption, settings_from
from sfd_stream.printable import printable

if TYPE_CHECKING:
    from sfd_stream.config.model import Settings
    from sfd_stream.doctor import Examined, Patient

_MARKS = {"good": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red"), "skipped": ("-", "blue")}


def doctor(config: ConfigOption = None, overrides: SetOption = None, as_json: JsonOption = False) -> None:
    """Check everything that a worker needs, by real requests: broker, permissions, topics, store, machine.

    It leaves nothing behind. Each check passes, or prints a reason and a remedy.
    Exit code 0: all good; 1: warnings; otherwise the code with which "sfd-stream run" would end.

    Example: [bold]sfd-stream doctor --config settings.yaml[/bold]
    """
    from sfd_stream.cli.output import print_json
    from sfd_stream.doctor import exit_code

    done = []
    for found in _examined(config, overrides):
        done.append(found)
        if not as_json:
            _print(found)
    code = exit_code(done)
    if as_json:
        verdict = "good" if code == 0 else "warning" if code == 1 else "failed"
        print_json({"verdict": verdict, "exit_code": code, "checks": [found.as_map() for found in done]})
    raise typer.Exit(code)


def _examined(config: ConfigOption, overrides: SetOption) -> "Iterator[Examined]":
    """Checks the settings first: without valid settings, no other check can run."""
    from sfd_stream.doctor import Examined, checks, examine
    from sfd_stream.doctor.check import failed, good
    from sfd_stream.errors import BrokerRefusedError, SettingsError

    try:
        effective = settings_from(config, overrides)
        patient = _patient(effective.settings)
    except (SettingsError, BrokerRefusedError) as error:
        remedy = '"sfd-stream config check" lists what is wrong, "config show" where each value came from'
        reason = "; ".join(error.problems) if isinstance(error, SettingsError) else str(error)
        yield Examined("settings", failed(reason, remedy, type(error)))
        return
    yield Examined("settings", good("all settings are valid and consistent"))
    yield from examine(checks(), patient)


def _patient(settings: "Settings") -> "Patient":
    import logging
    import time
    from dataclasses import replace

    from sfd_stream.cli.build import hooks_of, shape_of, store_of
    from sfd_stream.cli.commands.features import preview_of
    from sfd_stream.config.container_limits import own_quota
    from sfd_stream.doctor import Patient

    # The checks report what the client would log.
    silent = logging.getLogger("sfd_stream.doctor")
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    hooks = replace(hooks_of(settings), logger=silent)
    patient = Patient(settings, hooks, store_of(settings), shape_of(settings, 0), own_quota(), time.time)
    patient.preview = lambda: preview_of(settings)
    return patient


def _print(found: "Examined") -> None:
    mark, colour = _MARKS[found.finding.verdict.value]
    typer.echo(f"{typer.style(mark, fg=colour)} {found.name:<22} {printable(found.finding.reason)}")
    if found.finding.remedy:
        typer.echo(f"  {'':<22} → {printable(found.finding.remedy)}")
