"""Columns that dominate the rows sketched so far, by their exact sums of squares: advice on scaling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sfd_stream.sketch.rows import Float
from sfd_stream.state.manifest import Manifest
from sfd_stream.state.perform import run
from sfd_stream.state.protocol import load_blobs
from sfd_stream.storage.contract import Store
from sfd_stream.tools.inspect import Place, newest_manifests, patient
from sfd_stream.tools.preview import DOMINANT_SHARE
from sfd_stream.wire.frames import Arrays, decode_arrays


@dataclass(frozen=True)
class ColumnTotals:
    """The sums of squares of all rows that were shrunk, over the partitions that have such sums."""

    weight: float
    squares: Float
    names: dict[int, str]

    def advice(self) -> list[str]:
        """A sentence for each column with more than DOMINANT_SHARE of the squared norm, the strongest first."""
        total = float(self.squares.sum())
        strongest = np.argsort(-self.squares, kind="stable")[: int(1 / DOMINANT_SHARE)].tolist()
        return [self._words(column, total) for column in strongest if self.squares[column] > DOMINANT_SHARE * total]

    def _words(self, column: int, total: float) -> str:
        root_mean_square = float(np.sqrt(self.squares[column] / self.weight))
        name = self.names.get(column, f"column {column}")
        return (
            f"{name} has {self.squares[column] / total:.0%} of the squared norm of"
            f" the rows sketched: consider log1p, clip or ignore, or a scale of {1 / root_mean_square:.2g}, which makes"
            " its mean square 1"
        )


def column_totals(store: Store, group: str, topic: str, timeout_s: float) -> ColumnTotals | None:
    """The sums of squares in the newest checkpoint of each partition. None if no partition has them."""
    newest = newest_manifests(store, group, topic, timeout_s)
    found = [state for place in newest for state in _sketch_of(place, newest[place], store, timeout_s)]
    if not found:
        return None
    d = max(len(state.arrays["column_squares"]) for state in found)
    names: dict[int, str] = {}
    for state in found:
        names |= dict(zip(*state.numbers["names"], strict=True))
    squares = np.zeros(d)
    for state in found:
        of_partition = state.arrays["column_squares"]
        squares[: len(of_partition)] += of_partition
    return ColumnTotals(sum(float(state.numbers["weight"]) for state in found), squares, names)


def _sketch_of(place: Place, newest: Manifest, store: Store, timeout_s: float) -> Iterator[Arrays]:
    """The stored sketch of a partition, if it has sums of squares of any rows."""
    if newest.sketch is None:
        return
    blobs = run(load_blobs((newest.sketch,), number=newest.number, where=str(place)), store, patient(timeout_s))
    if isinstance(blobs, tuple):
        state = decode_arrays(blobs[0], kind="sketch")
        if "column_squares" in state.arrays and state.numbers["weight"] > 0:
            yield state
