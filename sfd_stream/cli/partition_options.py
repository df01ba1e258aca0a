"""Which partitions a command is about, and the workbench to look at them with."""

# Annotations are evaluated: typer reads them.
import random
import time
from typing import TYPE_CHECKING, Annotated

import typer

from sfd_stream.errors import SettingsError

if TYPE_CHECKING:
    from sfd_stream.config.model import Settings
    from sfd_stream.storage.contract import Store
    from sfd_stream.tools.inspect import Place
    from sfd_stream.tools.repair import Workbench

PATIENCE_MAX_S = 30.0
"""A person waits: no longer than this for a store that is away."""

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
    """All partitions of the group and topic that have something in the store."""
    from sfd_stream.tools.inspect import Place, partitions_in

    topic = settings.input.topic
    return [Place(settings.group, topic, p) for p in partitions_in(store, settings.group, topic)]


def workbench_of(settings: "Settings") -> "Workbench":
    from sfd_stream.cli.build import store_of
    from sfd_stream.state.perform import Patience
    from sfd_stream.tools.repair import Workbench

    give_up_s = min(settings.checkpoint.give_up_s, PATIENCE_MAX_S)
    patience = Patience(give_up_s, time.monotonic, time.sleep, lambda: random.uniform(0.5, 1))
    return Workbench(store_of(settings), patience, time.time)


def short_age(seconds: float) -> str:
    """In the largest unit that fits: 42 s, 3 min, 5 h, 8 d."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
