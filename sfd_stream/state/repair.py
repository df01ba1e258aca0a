"""What a person may do to a partition's state: return to an older one, or start again. Nothing is rewritten.

Both append a manifest with a higher epoch, so that a running owner is fenced and readers take the new state for newer.
Both copy blobs to names of the new slot, so that retention can remove the old ones [C]. Both work when the newest
manifest can't be read: its epoch is then at most one more for each manifest since the last readable one, because only a
repair raises it by more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sfd_stream.state.manifest import (
    Binding,
    BlobRef,
    Kind,
    Manifest,
    StateId,
    blob_key,
    blob_name_of,
    blob_ref,
)
from sfd_stream.state.protocol import Created, StoredState, create, listed_numbers, read_manifest, read_state
from sfd_stream.state.steps import Fenced, Put, Refused, Steps, until_known
from sfd_stream.wire.snapshot_ids import followed

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Mark:
    """For one repair: where (topic/partition, for messages), and new values for each attempt."""

    prefix: str
    where: str
    nonce: str
    written_at_s: float


@dataclass(frozen=True)
class ResetPoint:
    """Where a reset begins. `output_epoch`: the highest epoch that the output topic has for this key [P]."""

    binding: Binding
    next_offset: int
    leader_epoch: int | None
    parameters: Mapping[str, Any]
    output_epoch: int | None


@dataclass(frozen=True)
class _Survey:
    numbers: list[int]
    newest: Manifest | None
    """The newest manifest that can be read."""

    @property
    def slot(self) -> int:
        return self.numbers[-1] + 1 if self.numbers else 1

    @property
    def parent(self) -> str | None:
        if self.newest is None or self.newest.number + 1 != self.slot:
            return None
        return self.newest.nonce

    def epoch_above(self, output_epoch: int | None) -> int:
        """Above every epoch that any manifest can have, and above every epoch on the output topic."""
        on_topic = followed(output_epoch)
        if self.newest is None:
            return on_topic + self.slot
        return max(on_topic, self.newest.epoch + self.slot - self.newest.number - 1) + 1


def rollback(mark: Mark, *, to: int | None = None) -> Steps[Created | Fenced | Refused]:
    """Appends a manifest with an older state: that of `to`, or the newest good one before the newest."""
    target = yield from _target(mark, to)
    if isinstance(target, Refused):
        return target
    survey, old = target
    state = replace(old.manifest, epoch=survey.epoch_above(None), kind=Kind.ROLLBACK)
    return (yield from _append(mark, survey, state, old.blobs))


def rollback_target(mark: Mark) -> Steps[Manifest | Refused]:
    """The manifest that `rollback` would take now without `to`."""
    target = yield from _target(mark, None)
    return target if isinstance(target, Refused) else target[1].manifest


def reset(mark: Mark, start: ResetPoint, *, keep_sketch: bool) -> Steps[Created | Fenced | Refused]:
    """Appends a manifest that reads from `start`, with an empty sketch or with the newest one."""
    survey = yield from _survey(mark)
    if isinstance(survey, Refused):
        return survey
    epoch = survey.epoch_above(start.output_epoch)
    blank = Manifest(
        number=survey.slot,
        epoch=epoch,
        nonce=mark.nonce,
        parent=None,
        kind=Kind.RESET,
        binding=start.binding,
        next_offset=start.next_offset,
        leader_epoch=start.leader_epoch,
        counters={},
        parameters=start.parameters,
        state_id=StateId(epoch, survey.slot),
        written_at_s=mark.written_at_s,
    )
    if not keep_sketch or not survey.numbers:
        return (yield from _append(mark, survey, blank, ()))
    found = yield from _read_state(mark, survey.numbers[-1])
    if isinstance(found, Refused):
        return found
    old = found.manifest
    kept = replace(blank, sketch=old.sketch, buffer=old.buffer, counters=old.counters, parameters=old.parameters)
    return (yield from _append(mark, survey, kept, found.blobs))


def _target(mark: Mark, to: int | None) -> Steps[tuple[_Survey, StoredState] | Refused]:
    """What is there now, and the state to which a rollback returns."""
    survey = yield from _survey(mark)
    if isinstance(survey, Refused):
        return survey
    if survey.newest is None:
        return Refused(
            f"no checkpoint of {mark.where} can be read",
            f'run "sfd-stream checkpoint reset {mark.where} --to earliest"',
        )
    found = yield from (_find_good(mark, survey) if to is None else _read_state(mark, to))
    return found if isinstance(found, Refused) else (survey, found)


def _survey(mark: Mark) -> Steps[_Survey | Refused]:
    numbers = yield from listed_numbers(mark.prefix)
    for number in reversed(numbers):
        manifest = yield from read_manifest(mark.prefix, number, where=mark.where)
        if isinstance(manifest, Manifest):
            return _Survey(numbers, manifest)
        if manifest.newer:  # whole, and not ours to go over
            return manifest
    return _Survey(numbers, None)


def _find_good(mark: Mark, survey: _Survey) -> Steps[StoredState | Refused]:
    """The newest state that is older than the newest manifest's and can be loaded in full.

    After a rollback, the states in between are newer than the one it returned to, though their manifests come before
    the rollback's. A second rollback must not return to them.
    """
    assert survey.newest is not None
    readable = survey.newest.number == survey.numbers[-1]
    below = survey.newest.state_id.number if readable else survey.newest.number + 1
    went_back = readable and (yield from _went_back(mark, survey.newest))
    for number in reversed(survey.numbers):
        if number < below:
            found = yield from _read_state(mark, number)
            if isinstance(found, Refused) or (went_back and found.manifest.next_offset >= survey.newest.next_offset):
                continue
            return found
    return Refused(
        f"no older checkpoint of {mark.where} is whole",
        f'run "sfd-stream checkpoint reset {mark.where} --to earliest"',
    )


def _went_back(mark: Mark, newest: Manifest) -> Steps[bool]:
    """Whether a rollback created this state; a claim only copies it."""
    if newest.kind is not Kind.CLAIM:
        return newest.kind is Kind.ROLLBACK
    maker = yield from read_manifest(mark.prefix, newest.state_id.number, where=mark.where)
    return isinstance(maker, Manifest) and maker.kind is Kind.ROLLBACK


def _read_state(mark: Mark, number: int) -> Steps[StoredState | Refused]:
    return read_state(mark.prefix, number, where=mark.where)


def _copies(mark: Mark, slot: int, state: Manifest, blobs: tuple[bytes, ...]) -> dict[BlobRef, BlobRef]:
    """For each reference of the state, the one to its copy."""
    copies = {}
    for index, (blob, data) in enumerate(zip(state.state_references, blobs, strict=True)):
        name = blob_name_of(blob.key)
        kind = f"copy-{index}" if name is None else f"{name.kind.partition('-')[0]}-{index}"
        copies[blob] = blob_ref(blob_key(mark.prefix, slot, state.epoch, mark.nonce, kind), data)
    return copies


def _append(
    mark: Mark, survey: _Survey, state: Manifest, blobs: tuple[bytes, ...]
) -> Steps[Created | Fenced | Refused]:
    """Appends this state. `blobs`: the bytes of its references, which are copied to names of the new slot."""
    copies = _copies(mark, survey.slot, state, blobs)
    for copy, data in zip(copies.values(), blobs, strict=True):
        yield from until_known(Put(copy.key, data))
    newest = survey.newest
    manifest = replace(
        state,
        number=survey.slot,
        nonce=mark.nonce,
        parent=survey.parent,
        sketch=None if state.sketch is None else copies[state.sketch],
        buffer=tuple(copies[blob] for blob in state.buffer),
        state_id=StateId(state.epoch, survey.slot),
        due=None,
        published=None if newest is None else newest.published,
        written_at_s=mark.written_at_s,
    )
    return (yield from create(mark.prefix, manifest))
