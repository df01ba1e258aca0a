"""Manual repairs of a partition's state in a store: roll back, reset, prune. No manifest is rewritten."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sfd_stream.errors import FencedError
from sfd_stream.state.manifest import Manifest
from sfd_stream.state.perform import Patience, run
from sfd_stream.state.protocol import Created
from sfd_stream.state.repair import Mark, ResetPoint, reset, rollback, rollback_target
from sfd_stream.state.retention import Removed, retain
from sfd_stream.state.steps import Fenced, Refused, Steps
from sfd_stream.storage.contract import Store
from sfd_stream.tools.inspect import Place

T = TypeVar("T")

TRIES = 5
"""Maximum number of attempts. An active owner may fill the slot first; each attempt follows the newest manifest."""


@dataclass(frozen=True)
class StoreSession:
    """A store, with the retries and the clock of manual repairs."""

    store: Store
    patience: Patience
    wall_clock: Callable[[], float]

    def run(self, steps: Steps[T | Refused]) -> T:
        """The outcome of the steps. A refusal is raised."""
        outcome = run(steps, self.store, self.patience)
        if isinstance(outcome, Refused):
            raise outcome.error()
        return outcome

    def rollback_target(self, place: Place) -> Manifest:
        """The manifest that `roll_back` goes back to if no number is given."""
        return self.run(rollback_target(self._mark(place)))

    def roll_back(self, place: Place, to: int) -> Manifest:
        """Writes a new manifest with the state of manifest `to`."""
        return self._append(place, lambda mark: rollback(mark, to=to))

    def reset(self, place: Place, start: ResetPoint, *, keep_sketch: bool) -> Manifest:
        """Writes a new manifest that reads from `start`."""
        return self._append(place, lambda mark: reset(mark, start, keep_sketch=keep_sketch))

    def prune(self, place: Place, keep: int) -> Removed:
        """Removes all blobs that none of the newest `keep` states needs."""
        outcome = self.run(retain(place.prefix, keep=keep, where=str(place)))
        assert isinstance(outcome, Removed), "only an owner can be fenced"
        return outcome

    def _append(self, place: Place, attempt: Callable[[Mark], Steps[Created | Fenced | Refused]]) -> Manifest:
        for _ in range(TRIES):
            outcome = self.run(attempt(self._mark(place)))
            if isinstance(outcome, Created):
                return outcome.manifest
        raise FencedError(
            f"the owner of {place} wrote a checkpoint at the same moment, {TRIES} times in a row; "
            "stop the workers of its group and try again"
        )

    def _mark(self, place: Place) -> Mark:
        return Mark(place.prefix, str(place), uuid.uuid4().hex, self.wall_clock())
