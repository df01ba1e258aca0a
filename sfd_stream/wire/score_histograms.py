"""Histograms of scores as bytes: a frame of kind `scores`, two arrays for each score (docs/reference/formats.md)."""

from __future__ import annotations

from typing import Any

import numpy as np

from sfd_stream.errors import FormatError
from sfd_stream.sketch.scoring.histogram import BIN_LEAST, BIN_MOST, BINS_PER_OCTAVE, SCORES, Bins, ScoreHistogram
from sfd_stream.wire.frames import Arrays, decode_arrays, encode_arrays

KIND = "scores"


def encode(histogram: ScoreHistogram) -> bytes:
    numbers = {"rows": histogram.rows, "k": histogram.k, "bins_per_octave": BINS_PER_OCTAVE}
    arrays: dict[str, Any] = {}
    for name in SCORES:
        bins = histogram.bins[name]
        arrays[f"{name}_bins"] = bins.numbers.astype("<i4")
        arrays[f"{name}_counts"] = bins.counts.astype("<i8")
    return encode_arrays(KIND, numbers, arrays)


def decode(data: bytes) -> ScoreHistogram:
    """Raises FormatError, or one of its subclasses, and nothing else."""
    found = decode_arrays(data, kind=KIND)
    rows, k = found.numbers.get("rows"), found.numbers.get("k")
    if found.numbers.get("bins_per_octave") != BINS_PER_OCTAVE:
        raise FormatError(f"a histogram of scores has {found.numbers.get('bins_per_octave')!r:.60} bins per octave")
    if type(rows) is not int or rows < 0 or not (k is None or (type(k) is int and k >= 1)):
        raise FormatError(f"a histogram of scores has rows = {rows!r:.60} and k = {k!r:.60}")
    return ScoreHistogram(rows, k, {name: _bins(found, name, rows) for name in SCORES})


def _bins(found: Arrays, name: str, rows: int) -> Bins:
    numbers, counts = found.arrays.get(f"{name}_bins"), found.arrays.get(f"{name}_counts")
    if numbers is None or counts is None or (numbers.dtype, counts.dtype) != (np.dtype("<i4"), np.dtype("<i8")):
        raise FormatError(f"a histogram of scores lacks the bins or the counts of {name}")
    bins = Bins(numbers.astype(np.int64), counts.astype(np.int64))
    if not _sound(bins, rows):
        raise FormatError(
            f"a histogram of scores has bins of {name} that are not in order or do not add up to its rows"
        )
    return bins


def _sound(bins: Bins, rows: int) -> bool:
    numbers, counts = bins
    return bool(
        numbers.ndim == counts.ndim == 1
        and len(numbers) == len(counts)
        and (np.diff(numbers) > 0).all()
        and ((numbers >= BIN_LEAST) & (numbers <= BIN_MOST)).all()
        and ((counts > 0) & (counts <= rows)).all()
        and sum(counts.tolist()) == rows
    )
