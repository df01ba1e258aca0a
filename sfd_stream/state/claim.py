"""Takes a partition over: claims the newest state, or begins one. To be run only from an assignment callback.

All checks come before the claim: a claim fences the owner [F], and repeated claims of a state that can't be used would
fill the store [O].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from sfd_stream.errors import FormatError, RefusedStateError
from sfd_stream.state.compatibility import check_parameters
from sfd_stream.state.manifest import Binding, Kind, Manifest, StateId
from sfd_stream.state.protocol import (
    Created,
    check_binding,
    create,
    load_state,
    newest_number,
    read_manifest,
    unusable,
)
from sfd_stream.state.steps import AskCommitted, AskLog, AskOutputEpoch, LogFacts, Refused, Steps
from sfd_stream.wire.snapshot_ids import next_epoch

S = TypeVar("S")
Restore: TypeAlias = Callable[[Manifest, bytes | None, tuple[bytes, ...]], S]
"""Builds the partition's state from a manifest, its sketch's bytes and its buffer's. Raises FormatError if it can't."""

LOG_TRIES = 5  # a watermark just after a change of leader may be too low: ask again before believing it


@dataclass(frozen=True)
class Claimed(Generic[S]):
    """The result of a claim: its manifest, the state, and the bytes of a due snapshot that is not published yet.

    Before the claim: the manifest that passed every check, ready to be claimed.
    """

    manifest: Manifest
    state: S
    unpublished: bytes | None


@dataclass(frozen=True)
class Wish(Generic[S]):
    """The input of a claim: the partition's binding, and how its state shall be."""

    prefix: str
    binding: Binding
    parameters: Mapping[str, Any]
    start: Literal["earliest", "latest"]
    restore: Restore[S]
    nonces: Iterator[str]
    written_at_s: float

    @property
    def where(self) -> str:
        return f"{self.binding.topic}/{self.binding.partition}"


def assign(wish: Wish[S]) -> Steps[Claimed[S] | Refused]:
    """Claims the newest state, or begins one. To be run only from an assignment callback.

    Every fault is found *before* the claim [F, O]. It is believed only if the newest manifest is still the one in which
    it was found: between two of our reads an owner may have continued and pruned, a first owner may have begun and
    committed, a person may have repaired.
    """
    number = yield from newest_number(wish.prefix)
    while True:
        found = yield from (_begin(wish) if number is None else _examine(wish, number))
        if isinstance(found, Refused):
            newest = yield from newest_number(wish.prefix)
            if newest == number:
                return found
            number = newest
            continue
        claim = found.manifest
        if number is not None:
            claim = claim_of(found.manifest, wish, (yield AskOutputEpoch(needed=False)))
        outcome = yield from create(wish.prefix, claim)
        if isinstance(outcome, Created):
            return replace(found, manifest=outcome.manifest)
        number = yield from newest_number(wish.prefix)  # another was first: begin again, keep nothing of the first read


def claim_of(manifest: Manifest, wish: Wish[S], output_epoch: int | None) -> Manifest:
    """A manifest with a higher epoch, all else copied: the state keeps the id of the manifest that created it [N].

    The epoch is above the manifest's, and above that of the output topic for this key: after a restore from a backup
    the store is older than the topic [P]. Ids of cluster and topic that were not known before (a reset without a
    broker) are filled in.
    """
    return replace(
        manifest,
        number=manifest.number + 1,
        epoch=next_epoch(manifest.epoch, output_epoch),
        nonce=next(wish.nonces),
        parent=manifest.nonce,
        kind=Kind.CLAIM,
        binding=manifest.binding.filled(wish.binding),
        written_at_s=wish.written_at_s,
    )


def _begin(wish: Wish[S]) -> Steps[Claimed[S] | Refused]:
    """For a partition without a manifest: slot 1, which also stores the start offset."""
    committed = yield AskCommitted()
    if committed is not None:
        return Refused(
            f"group {wish.binding.group} has committed offset {committed} of {wish.where}, "
            "but there is no checkpoint: its state is lost or stored elsewhere",
            f'set checkpoint.url to where it is, or run "sfd-stream checkpoint reset {wish.where} --to earliest"',
        )
    log: LogFacts = yield AskLog()
    epoch = next_epoch(0, (yield AskOutputEpoch()))  # [P]
    offset = log.low if wish.start == "earliest" else log.high
    manifest = Manifest(
        number=1,
        epoch=epoch,
        nonce=next(wish.nonces),
        parent=None,
        kind=Kind.GENESIS,
        binding=wish.binding,
        next_offset=offset,
        leader_epoch=log.leader_epoch,
        counters={},
        parameters=wish.parameters,
        state_id=StateId(epoch, 1),
        written_at_s=wish.written_at_s,
    )
    return Claimed(manifest, wish.restore(manifest, None, ()), None)


def _examine(wish: Wish[S], number: int) -> Steps[Claimed[S] | Refused]:
    """Reads manifest `number` and all that it refers to, and makes every check."""
    manifest = yield from read_manifest(wish.prefix, number, where=wish.where)
    if isinstance(manifest, Refused):
        return manifest
    refused = (
        check_binding(manifest.binding, wish.binding)
        or check_parameters(manifest.parameters, wish.parameters, where=wish.where)
        or (yield from _check_log(manifest, wish.where))
    )
    return refused or (yield from _load(wish, manifest))


def _check_log(manifest: Manifest, where: str) -> Steps[Refused | None]:
    refused = None
    for attempt in range(LOG_TRIES):
        log: LogFacts = yield AskLog(again=attempt > 0)
        refused = judge_log(manifest, log, where)
        if refused is None:
            break
    return refused


def judge_log(manifest: Manifest, log: LogFacts, where: str) -> Refused | None:
    offset = manifest.next_offset
    if offset < log.low:
        return Refused(
            f"offsets {offset} to {log.low - 1} of {where} were removed by the topic's retention before they were read",
            f'accept the loss by "sfd-stream checkpoint reset {where} --to earliest --keep-sketch"',
        )
    if offset > log.high:
        return Refused(
            f"the checkpoint of {where} is at offset {offset}, the log ends at {log.high}: it lost records",
            f'run "sfd-stream checkpoint rollback {where}" until it fits, '
            f'or "sfd-stream checkpoint reset {where} --to latest --keep-sketch"',
        )
    behind = manifest.leader_epoch is not None and log.leader_epoch is not None
    if behind and log.leader_epoch < manifest.leader_epoch:  # type: ignore[operator]  # both are known here
        return Refused(
            f"the leader epoch of {where} went back from {manifest.leader_epoch} to {log.leader_epoch}: "
            "the log is not the one that was read",
            f'run "sfd-stream checkpoint reset {where} --to earliest"',
        )
    return None


def _load(wish: Wish[S], manifest: Manifest) -> Steps[Claimed[S] | Refused]:
    due = manifest.unpublished
    stored = yield from load_state(manifest, () if due is None else (due.blob,), where=wish.where)
    if isinstance(stored, Refused):
        return stored
    try:
        state = wish.restore(manifest, stored.sketch, stored.buffer)
    except (FormatError, RefusedStateError) as error:
        return unusable(manifest.number, wish.where, error)
    return Claimed(manifest, state, None if due is None else stored.others[0])
