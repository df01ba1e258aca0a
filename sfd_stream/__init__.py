"""A live, certified low-rank sketch of a Kafka topic of sparse rows, by Sparse Frequent Directions.

Importing this loads neither a Kafka client nor the command line; names load what they need when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfd_stream.reader.merged import MergedSketch
    from sfd_stream.reader.reader import SnapshotReader
    from sfd_stream.reader.transformer import SketchTransformer
    from sfd_stream.sketch.drift import Drift
    from sfd_stream.sketch.estimator import FrequentDirections, SparseFrequentDirections
    from sfd_stream.sketch.measures import covariance_error, projection_error
    from sfd_stream.sketch.sketch import Sketch
    from sfd_stream.sketch.synthetic import paper_synthetic
    from sfd_stream.wire.rows import decode, encode_row, encode_rows

__version__ = "0.1.0"

_HOMES = {
    "Drift": "sketch.drift",
    "FrequentDirections": "sketch.estimator",
    "MergedSketch": "reader.merged",
    "Sketch": "sketch.sketch",
    "SketchTransformer": "reader.transformer",
    "SnapshotReader": "reader.reader",
    "SparseFrequentDirections": "sketch.estimator",
    "covariance_error": "sketch.measures",
    "decode": "wire.rows",
    "encode_row": "wire.rows",
    "encode_rows": "wire.rows",
    "paper_synthetic": "sketch.synthetic",
    "projection_error": "sketch.measures",
}

__all__ = [
    "Drift",
    "FrequentDirections",
    "MergedSketch",
    "Sketch",
    "SketchTransformer",
    "SnapshotReader",
    "SparseFrequentDirections",
    "covariance_error",
    "decode",
    "encode_row",
    "encode_rows",
    "paper_synthetic",
    "projection_error",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
