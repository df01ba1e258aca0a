"""What may be removed from the store. Safe without a clock, at any time, by any process, however late a delete happens.

Kept are the newest `keep` distinct *states* with all that they refer to (a claim copies a state, so it removes none
[O]), and every snapshot that the output topic may still refer to. Blobs that are named for a slot after the newest
manifest belong to a checkpoint that is being written, and are never touched [C].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfd_stream.state.manifest import Manifest, blob_name_of, blobs_prefix, manifest_key
from sfd_stream.state.protocol import listed_numbers, read_manifest
from sfd_stream.state.steps import Delete, Fenced, Refused, Steps, list_keys, until_known

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class Removed:
    manifests: int
    blobs: int


@dataclass(frozen=True)
class Kept:
    """The newest manifest of each kept state, newest first. Not `complete`: one could not be read."""

    tops: tuple[Manifest, ...]
    complete: bool

    @property
    def floor(self) -> int:
        """The lowest manifest that stays: the one that created the oldest kept state."""
        return self.tops[-1].state_id.number


def retain(prefix: str, *, keep: int, own: Manifest | None = None, where: str) -> Steps[Removed | Fenced | Refused]:
    """Removes what is not kept. First manifests, in ascending order, one at a time, each confirmed [D]; then blobs.

    `own`: the caller's manifest, if the caller is the owner; it stops if there is a newer one. Without `own` (a
    person's `prune`) the newest one found is taken.
    """
    assert keep >= 1
    numbers = yield from listed_numbers(prefix)
    if not numbers:
        return Removed(0, 0)
    if own is not None and numbers[-1] != own.number:
        return Fenced(own.number)
    newest = own if own is not None else (yield from read_manifest(prefix, numbers[-1], where=where))
    if isinstance(newest, Refused):
        return newest
    kept = yield from find_kept(prefix, newest, numbers, keep=keep, where=where)
    doomed = removable_manifests(numbers, kept)
    for number in doomed:
        yield from until_known(Delete(manifest_key(prefix, number)))
    keys = removable_blobs((yield from list_keys(blobs_prefix(prefix))), kept)
    for key in keys:
        yield from until_known(Delete(key))
    return Removed(len(doomed), len(keys))


def find_kept(prefix: str, newest: Manifest, numbers: list[int], *, keep: int, where: str) -> Steps[Kept]:
    """Walks down the chain with one read for each state: a state's id says where the claims that copied it end."""
    tops, complete, listed = [newest], True, set(numbers)
    number = newest.state_id.number - 1
    while len(tops) < keep and number in listed:
        found = yield from read_manifest(prefix, number, where=where)
        if isinstance(found, Refused):  # damaged, or just removed by another process: its references are unknown
            complete = False
            number -= 1
        else:
            tops.append(found)
            number = found.state_id.number - 1
    return Kept(tuple(tops), complete)


def removable_manifests(numbers: Iterable[int], kept: Kept) -> list[int]:
    return sorted(number for number in numbers if number < kept.floor)


def removable_blobs(keys: Iterable[str], kept: Kept) -> list[str]:
    """Blobs to which no kept manifest, no later manifest and no published snapshot refers.

    A produce may have reached the topic though its report was lost. So every snapshot from the last acknowledged one on
    may be the newest for readers: all of them stay until a later one is acknowledged.
    """
    if not kept.complete:
        return []
    newest = kept.tops[0]
    referred = {blob.key for manifest in kept.tops for blob in manifest.references}
    last = None if newest.published is None else blob_name_of(newest.published.blob.key)
    first_open = 0 if last is None else last.slot
    doomed = []
    for key in keys:
        name = blob_name_of(key)
        if name is None or name.slot > newest.number or key in referred:
            continue
        if name.kind == "snapshot" and name.slot >= first_open:
            continue
        doomed.append(key)
    return sorted(doomed)
