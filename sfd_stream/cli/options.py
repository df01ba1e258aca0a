"""Options that commands share, and the settings loaded from them. Use in a command:

def run(config: ConfigOption = None, overrides: SetOption = None, as_json: JsonOption = False) -> None:
    effective = settings_from(config, overrides)
"""

# Annotations are evaluated: typer reads them.
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfd_stream.errors import SettingsError

if TYPE_CHECKING:
    from sfd_stream.config import Effective

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", envvar="SFD_CONFIG", help="The settings file (YAML)."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="Override one setting; may be repeated. Wins over the file and the environment.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


def settings_from(config: Path | None, overrides: list[str] | None) -> "Effective":
    """The effective settings of a command: its file, this process's environment, its --set flags."""
    from sfd_stream.config import load

    try:
        return load(config, environ=os.environ, overrides=overrides or ())
    except SettingsError as error:
        if config is not None:
            raise
        hint = (
            'no file was given: --config FILE names one, "sfd-stream config schema --example" prints one to begin with'
        )
        raise SettingsError(f"{error}\n  {hint}", problems=(*error.problems, hint)) from None
