"""`sfd-stream config check|show|schema`: validates settings, prints the effective ones, prints the schema."""

# Annotations are evaluated: typer reads them.
from typing import Annotated

import typer

from sfd_stream.cli.options import ConfigOption, JsonOption, SetOption, settings_from
from sfd_stream.cli.output import print_json, print_table, print_text
from sfd_stream.errors import SettingsError

HELP = """\
Check and show the settings.

Example: [bold]sfd-stream config show --config settings.yaml --set sketch.ell=100[/bold]
"""


def check(config: ConfigOption = None, overrides: SetOption = None, as_json: JsonOption = False) -> None:
    """Check the settings: list every error, and exit 2 if there is one.

    Example: [bold]sfd-stream config check --config settings.yaml[/bold]
    """
    try:
        settings_from(config, overrides)
    except SettingsError as error:
        if not as_json:
            raise
        print_json({"ok": False, "problems": list(error.problems)})
        raise typer.Exit(error.exit_code) from None
    if as_json:
        print_json({"ok": True, "problems": []})
    else:
        print_text("the settings are right")


def show(config: ConfigOption = None, overrides: SetOption = None, as_json: JsonOption = False) -> None:
    """Print the effective settings and the origin of each value. Secrets are masked.

    Example: [bold]SFD_SKETCH__ELL=100 sfd-stream config show --config settings.yaml[/bold]
    """
    from sfd_stream.config.describe import effective_rows

    rows = list(effective_rows(settings_from(config, overrides)))
    if as_json:
        print_json({key: {"value": value, "origin": origin} for key, value, origin in rows})
    else:
        printed = [(key, "null" if value is None else str(value), origin) for key, value, origin in rows]
        print_table(("setting", "value", "from"), printed)


def schema(
    *,
    example: Annotated[
        bool, typer.Option("--example", help="Print an annotated settings file (YAML) instead.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the JSON schema of a settings file, for editors and checks; or an annotated example.

    Example: [bold]sfd-stream config schema --example > settings.yaml[/bold]
    """
    from sfd_stream.config import describe

    if example and as_json:
        raise SettingsError("--example prints YAML; leave out one of --example and --json")
    if example:
        print_text(describe.example())
    else:
        print_json(describe.schema())


COMMANDS = {"check": check, "show": show, "schema": schema}
