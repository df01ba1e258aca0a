"""`sfd-stream demo`: shows the whole program in half a minute. Removes all that it created, however it ends."""

# Annotations are evaluated: typer reads them.
import os
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfd_stream.errors import SettingsError, SfdError

if TYPE_CHECKING:
    from sfd_stream.config.model import Settings
    from sfd_stream.demo.stage import DemoSetup

_PICTURE = "sfd-demo.svg"


def demo(
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker",
            metavar="HOST:PORT",
            help="Use this Kafka instead of the built-in broker; set its login by SFD_KAFKA__... in the environment.",
        ),
    ] = None,
    s3: Annotated[
        str | None,
        typer.Option(
            "--s3",
            metavar="BUCKET",
            help="Checkpoints in a bucket, as in my-bucket/folder; keys and endpoint come from AWS_... or"
            " SFD_CHECKPOINT__OPTIONS__... in the environment (ALLOW_HTTP=true for an endpoint without TLS).",
        ),
    ] = None,
    stay: Annotated[bool, typer.Option("--stay", help="Keep running with a slow stream of rows until Ctrl-C.")] = False,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="File for the picture.", show_default=f"./{_PICTURE}")
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Send JSON events, which the worker converts to rows, instead of msgpack rows."),
    ] = False,
) -> None:
    """Run the whole job on sample text: a worker is killed, no row is lost, topics and odd rows are found.

    It needs no broker: one is built in. It ends after about half a minute and leaves only a picture behind.
    Every claim is checked; if one does not hold, the demo reports it and the exit code is 1.

    Example: [bold]sfd-stream demo[/bold]

    On a cluster of your own, until Ctrl-C: [bold]sfd-stream demo --broker localhost:9092 --stay[/bold]
    """
    from sfd_stream.demo.script import program
    from sfd_stream.demo.view import DemoOutput

    began, file, output = time.monotonic(), _picture_place(picture), DemoOutput()
    output.title("sfd-stream demo", "the main directions of a Kafka topic, live, certified, and safe from kill -9")
    with _one_signal(), ExitStack() as stack:
        _play(stack, output, broker, s3, file, stay=stay, as_json=as_json)
    output.blank()
    output.sentence(f"Done in {time.monotonic() - began:.0f} s; everything except the picture was removed.")
    if not stay:
        output.sentence(f'Next: "{program()} demo --stay" keeps it running, "{program()} --help" has everything else.')


def _play(
    stack: ExitStack, output: Any, broker: str | None, s3: str | None, picture: Path, *, stay: bool, as_json: bool
) -> None:
    from threadpoolctl import threadpool_limits

    from sfd_stream.cli.build import admin_of, store_of
    from sfd_stream.cli.processes import rows_in_store
    from sfd_stream.config import load
    from sfd_stream.demo.script import Story, rows
    from sfd_stream.demo.stage import PARTITIONS, Feed, Workers
    from sfd_stream.kafka.topics import ensure_topic

    stack.enter_context(threadpool_limits(1))  # the workers need the cores, and the printed speed is that of one
    truth = rows(output, as_json=as_json)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sfd-demo-")))
    setup = _setup(stack, broker, s3, folder, "json" if as_json else "msgpack")
    file = setup.write_settings(folder)
    settings = load(file, environ=setup.environ, overrides=setup.overrides).settings
    # An unreachable broker or bucket is reported before anything starts.
    store_of(settings).list("")
    ensure_topic(admin_of(settings), setup.topic, PARTITIONS, sleep=time.sleep)
    stack.enter_context(_cleaned_up(setup, settings))
    workers = stack.enter_context(Workers(folder, file, setup))
    feed = Feed(settings.kafka, setup.topic)
    story = Story(setup, settings, workers, output, truth, feed, lambda: rows_in_store(settings))
    story.run(picture)
    if stay:
        try:
            story.stay()
        except KeyboardInterrupt:
            output.sentence("Ctrl-C: cleaning up.")


def _setup(stack: ExitStack, broker: str | None, s3: str | None, folder: Path, form: str) -> "DemoSetup":
    from sfd_stream.demo.stage import DemoSetup, built_in_broker

    name = f"sfd-demo-{uuid.uuid4().hex[:8]}"
    bootstrap = broker or stack.enter_context(built_in_broker())
    checkpoints = (folder / "checkpoints").as_uri() if s3 is None else f"{_bucket(s3)}/{name}"
    mark = "" if broker is None else f"{name}-"
    names = f"{mark}docstrings", f"{mark}sketches", f"{mark}demo"
    return DemoSetup(bootstrap, *names, checkpoints, given=broker is not None, format=form)


def _bucket(text: str) -> str:
    """The bucket as a URL. `gs://` and `az://` are accepted, too."""
    url = text if "://" in text else f"s3://{text}"
    if not url.partition("://")[2].strip("/"):
        raise SettingsError("--s3 takes a bucket, as in my-bucket or s3://my-bucket/folder")
    return url.rstrip("/")


@contextmanager
def _cleaned_up(setup: "DemoSetup", settings: "Settings") -> Iterator[None]:
    """Removes all that the demo created on the user's broker and in the user's bucket. Prints what can't be removed."""
    from sfd_stream.cli.build import admin_of, store_of
    from sfd_stream.demo.stage import remove_checkpoints, remove_topics

    try:
        yield
    finally:
        left = remove_topics(admin_of(settings), setup) if setup.given else []
        try:
            remove_checkpoints(store_of(settings))
        except SfdError as error:
            left.append(f"objects under {setup.checkpoints} ({error})")
        if left:
            sys.stderr.write(f"could not remove {', '.join(left)}: please remove by hand\n")


@contextmanager
def _one_signal() -> Iterator[None]:
    """The first Ctrl-C or SIGTERM ends the demo after its cleanup. Further signals do not interrupt the cleanup."""

    def end(number: int, _: object) -> None:
        for other in before:
            signal.signal(other, signal.SIG_IGN)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _picture_place(given: Path | None) -> Path:
    """The given place, else the current folder, or the temporary folder if the current one is not writable."""
    if given is None:
        return Path(_PICTURE) if os.access(".", os.W_OK) else Path(tempfile.gettempdir(), _PICTURE)
    if given.is_dir() or not os.access(given.parent, os.W_OK):
        raise SettingsError(f"--picture: {given} can't be written; give a file in a folder that exists")
    return given
