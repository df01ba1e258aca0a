"""The commands, gathered: a new one is a file with one function, and one line in `_register`."""

# Annotations are evaluated: typer reads them.
import sys
from typing import Annotated, Any

import typer

from sfd_stream import __version__
from sfd_stream.cli.commands import (
    basis,
    bench,
    checkpoint,
    config,
    demo,
    doctor,
    drift,
    export,
    features,
    health,
    merge,
    metrics,
    plot,
    produce,
    read,
    score,
    size,
    topics,
    watch,
)
from sfd_stream.cli.commands import run as run_command
from sfd_stream.printable import printable_lines

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
STREAM = "The stream"
# typer turns an interrupt into this code and says nothing.
_TYPER_INTERRUPTED = 130

DATA = "Data"
READING = "Reading"
SETTINGS = "Settings"
TOOLS = "Planning and diagnosis"


def run(arguments: list[str]) -> int:
    """Parse the arguments and run the command; what goes wrong in it is raised."""
    command = typer.main.get_command(_app())
    _show_flags_without_a_type(command)
    try:
        code = command.main(args=arguments or ["--help"], prog_name="sfd-stream", standalone_mode=False)
    except typer.Exit as done:
        return done.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.TyperException as error:
        _say_misuse(error)
        return error.exit_code
    if code == _TYPER_INTERRUPTED:
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _say_misuse(error: typer.TyperException) -> None:
    """One sentence, and where to read on."""
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


def _show_flags_without_a_type(command: Any) -> None:
    """Typer would show --json as `--json <bool>`, as if it took a value."""
    context = typer.Context(command, help_option_names=_HELP_NAMES)
    for option in (option for option in command.get_params(context) if getattr(option, "is_flag", False)):
        option.metavar = ""
    for below in getattr(command, "commands", {}).values():
        _show_flags_without_a_type(below)


def _register(app: typer.Typer) -> None:
    app.command("demo", rich_help_panel=STREAM)(demo.demo)
    app.command("run", rich_help_panel=STREAM)(run_command.run)
    app.command("merge", rich_help_panel=STREAM)(merge.merge)
    app.command("score", rich_help_panel=STREAM)(score.score)
    app.command("read", rich_help_panel=READING)(read.read)
    app.command("watch", rich_help_panel=READING)(watch.watch)
    app.command("plot", rich_help_panel=READING)(plot.plot)
    app.command("export", rich_help_panel=READING)(export.export)
    app.command("drift", rich_help_panel=READING)(drift.drift)
    app.command("health", rich_help_panel=STREAM)(health.health)
    app.command("produce", rich_help_panel=DATA)(produce.produce)
    app.command("topics", rich_help_panel=DATA)(topics.topics)
    app.add_typer(basis.app(), name="basis", rich_help_panel=STREAM)
    app.add_typer(checkpoint.app(), name="checkpoint", rich_help_panel=STREAM)
    app.add_typer(config.app(), name="config", rich_help_panel=SETTINGS)
    app.command("doctor", rich_help_panel=TOOLS)(doctor.doctor)
    app.command("features", rich_help_panel=TOOLS)(features.features)
    app.command("size", rich_help_panel=TOOLS)(size.size)
    app.command("bench", rich_help_panel=TOOLS)(bench.bench)
    app.command("metrics", rich_help_panel=SETTINGS)(metrics.metrics)


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
