"""The list of commands. A new command is a file with one function of the same name, and its name in `_PANELS`."""

# Annotations are evaluated: typer reads them.
import sys
from importlib import import_module
from typing import Annotated, Any

import typer

from sfd_stream import __version__
from sfd_stream.printable import printable_lines

_PANELS = {
    "The stream": "demo run merge score health basis checkpoint",
    "Reading": "read watch plot export drift",
    "Data": "produce topics",
    "Planning and diagnosis": "doctor features size bench",
    "Settings": "metrics config",
}
"""The commands by panel of the help, in its order. Each is a module of `cli/commands/`. Its function of the same name
is the command; a group of commands has `COMMANDS` and `HELP` instead."""

_EPILOG = """\
[bold]To begin[/bold] without a broker: [bold]sfd-stream demo[/bold]

With one on localhost:9092:

[bold]sfd-stream config schema --example > settings.yaml[/bold]

[bold]sfd-stream produce --config settings.yaml --synthetic 10000,1000,100 --partitions 4[/bold]

[bold]sfd-stream doctor --config settings.yaml[/bold]

[bold]sfd-stream run --config settings.yaml --until-end[/bold]

[bold]sfd-stream checkpoint ls --config settings.yaml[/bold]

[bold]Exit codes[/bold]: 0 done · 1 unexpected (doctor: warnings) · 2 wrong settings or flags ·
3 the checkpoint cannot be used · 4 too many bad messages ·
5 the broker or the store refused permanently, or was unavailable too long ·
130, 143 ended by a second signal.

[bold]Settings[/bold] come from defaults, then --config FILE, then SFD_SECTION__KEY in the environment, then
--set section.key=value. "sfd-stream config show" prints the values and their origin.
"""

_HELP_NAMES = ["-h", "--help"]
# typer turns an interrupt into this code without a message.
_TYPER_INTERRUPTED = 130


def run(arguments: list[str]) -> int:
    """Parse the arguments and run the command. Its errors are raised."""
    command = typer.main.get_command(_app())
    _remove_types_of_flags(command)
    try:
        code = command.main(args=arguments or ["--help"], prog_name="sfd-stream", standalone_mode=False)
    except typer.Exit as done:
        return done.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.TyperException as error:
        _print_misuse(error)
        return error.exit_code
    if code == _TYPER_INTERRUPTED:
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _print_misuse(error: typer.TyperException) -> None:
    """Prints one sentence and the command for help."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "sfd-stream"
    sys.stderr.write(f'error: {printable_lines(error.format_message().rstrip("."))}; see "{command} --help"\n')


def _app() -> typer.Typer:
    app = typer.Typer(
        name="sfd-stream",
        help="A live, certified low-rank sketch of a Kafka topic of sparse rows.",
        epilog=_EPILOG,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": _HELP_NAMES},
    )
    app.callback()(_root)
    _register(app)
    return app


def _remove_types_of_flags(command: Any) -> None:
    """Removes the type of flags from the help: typer prints --json as `--json <bool>`, as if it took a value."""
    context = typer.Context(command, help_option_names=_HELP_NAMES)
    for option in (option for option in command.get_params(context) if getattr(option, "is_flag", False)):
        option.metavar = ""
    for below in getattr(command, "commands", {}).values():
        _remove_types_of_flags(below)


def _register(app: typer.Typer) -> None:
    for panel, names in _PANELS.items():
        for name in names.split():
            module = import_module(f"sfd_stream.cli.commands.{name}")
            if hasattr(module, "COMMANDS"):
                group = typer.Typer(name=name, help=module.HELP, rich_markup_mode="rich")
                for below, function in module.COMMANDS.items():
                    group.command(below)(function)
                app.add_typer(group, rich_help_panel=panel)
            else:
                app.command(name, rich_help_panel=panel)(getattr(module, name))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sfd-stream {__version__}")
        raise typer.Exit


def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback when something fails.")] = False,
) -> None:
    """A live, certified low-rank sketch of a Kafka topic of sparse rows."""
