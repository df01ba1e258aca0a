"""`sfd-stream demo`: what it is for, in half a minute. Cleans up behind itself, however it ends."""

# Annotations are evaluated: typer reads them.
import os
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfd_stream.errors import SettingsError, SfdError

if TYPE_CHECKING:
    from sfd_stream.config.model import Settings
    from sfd_stream.demo.stage import Ground

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
    from sfd_stream.demo.view import Teller

    began, file, teller = time.monotonic(), _picture_place(picture), Teller()
    teller.title("sfd-stream demo", "the main directions of a Kafka topic, live, certified, and safe from kill -9")
    with _one_signal(), ExitStack() as stack:
        _play(stack, teller, broker, s3, file, stay=stay, as_json=as_json)
    teller.blank()
    teller.say(f"Done in {time.monotonic() - began:.0f} s; everything but the picture is gone again.")
    if not stay:
        teller.say(f'Next: "{program()} demo --stay" keeps it running, "{program()} --help" has everything else.')


def _play(
    stack: ExitStack, teller: Any, broker: str | None, s3: str | None, picture: Path, *, stay: bool, as_json: bool
) -> None:
    from threadpoolctl import threadpool_limits

    from sfd_stream.cli.build import admin_of, store_of
    from sfd_stream.cli.processes import rows_in_store
    from sfd_stream.config import load
    from sfd_stream.demo.script import Story, rows
    from sfd_stream.demo.stage import PARTITIONS, Workers
    from sfd_stream.kafka.topics import ensure_topic

    stack.enter_context(threadpool_limits(1))  # the workers want the cores, and the speed said is that of one
    truth = rows(teller, as_json=as_json)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sfd-demo-")))
    ground = replace(_ground(stack, broker, s3, folder), format="json" if as_json else "msgpack")
    file = ground.write_settings(folder)
    settings = load(file, environ=ground.environ, overrides=ground.overrides).settings
    # What can't be reached is said before anything is begun.
    store_of(settings).list("")
    ensure_topic(admin_of(settings), ground.topic, PARTITIONS, sleep=time.sleep)
    stack.enter_context(_cleaned_up(ground, settings))
    workers = stack.enter_context(Workers(folder, file, ground))
    story = Story(ground, settings, workers, teller, truth, lambda: rows_in_store(settings))
    story.tell(picture)
    if stay:
        try:
            story.stay()
        except KeyboardInterrupt:
            teller.say("Ctrl-C: cleaning up.")


def _ground(stack: ExitStack, broker: str | None, s3: str | None, folder: Path) -> "Ground":
    from sfd_stream.demo.stage import Ground, built_in_broker

    name = f"sfd-demo-{uuid.uuid4().hex[:8]}"
    bootstrap = broker or stack.enter_context(built_in_broker())
    checkpoints = (folder / "checkpoints").as_uri() if s3 is None else f"{_bucket(s3)}/{name}"
    mark = "" if broker is None else f"{name}-"
    return Ground(bootstrap, f"{mark}docstrings", f"{mark}sketches", f"{mark}demo", checkpoints, broker is not None)


def _bucket(text: str) -> str:
    """As a URL; `gs://` and `az://` are as good."""
    url = text if "://" in text else f"s3://{text}"
    if not url.partition("://")[2].strip("/"):
        raise SettingsError("--s3 takes a bucket, as in my-bucket or s3://my-bucket/folder")
    return url.rstrip("/")


@contextmanager
def _cleaned_up(ground: "Ground", settings: "Settings") -> Iterator[None]:
    """What lies on a broker or in a bucket that is somebody's own is removed; what can't be is named."""
    from sfd_stream.cli.build import admin_of, store_of
    from sfd_stream.demo.stage import remove_checkpoints, remove_topics

    try:
        yield
    finally:
        left = remove_topics(admin_of(settings), ground) if ground.given else []
        try:
            remove_checkpoints(store_of(settings))
        except SfdError as error:
            left.append(f"objects under {ground.checkpoints} ({error})")
        if left:
            sys.stderr.write(f"could not remove {', '.join(left)}: please remove by hand\n")


@contextmanager
def _one_signal() -> Iterator[None]:
    """The first Ctrl-C or SIGTERM ends the demo, by way of its cleaning up; more of them do not end that."""

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
    """Here, or among the temporary files where one may not write here."""
    if given is None:
        return Path(_PICTURE) if os.access(".", os.W_OK) else Path(tempfile.gettempdir(), _PICTURE)
    if given.is_dir() or not os.access(given.parent, os.W_OK):
        raise SettingsError(f"--picture: {given} can't be written; give a file in a folder that exists")
    return given
