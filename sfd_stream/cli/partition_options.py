"""The partition arguments of commands, and the store session for them."""

# Annotations are evaluated: typer reads them.
import time
from typing import TYPE_CHECKING, Annotated

import typer

from sfd_stream.errors import SettingsError

if TYPE_CHECKING:
    from sfd_stream.config.model import Settings
    from sfd_stream.storage.contract import Store
    from sfd_stream.tools.inspect import Place
    from sfd_stream.tools.repair import StoreSession

PATIENCE_MAX_S = 30.0
"""Maximum time that a command waits for an unavailable store, because a person waits for the command."""

PlaceArgument = Annotated[
    str, typer.Argument(metavar="T/P", help="Topic/partition of the group, or only the partition of input.topic.")
]


def place_of(settings: "Settings", text: str) -> "Place":
    """`rows/3`, or `3` of the topic in the settings."""
    from sfd_stream.tools.inspect import Place

    topic, _, partition = text.rpartition("/")
    if not (partition.isascii() and partition.isdigit()) or "/" in topic or text.startswith("/"):
        raise SettingsError(
            f"{text!r} is no partition; write topic/partition, as in {settings.input.topic}/0, or just 0"
        )
    return Place(settings.group, topic or settings.input.topic, int(partition))


def places_of(settings: "Settings", store: "Store") -> "list[Place]":
    """All partitions of the group and topic that have objects in the store."""
    from sfd_stream.tools.inspect import places_in

    return places_in(store, settings.group, settings.input.topic)


def store_session_of(settings: "Settings") -> "StoreSession":
    from sfd_stream.cli.build import store_of
    from sfd_stream.tools.inspect import patient
    from sfd_stream.tools.repair import StoreSession

    return StoreSession(store_of(settings), patient(min(settings.checkpoint.give_up_s, PATIENCE_MAX_S)), time.time)


def short_age(seconds: float) -> str:
    """An age in the largest unit that fits: 42 s, 3 min, 5 h, 8 d."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
