"""A live, certified low-rank sketch of a Kafka topic of sparse rows, by Sparse Frequent Directions.

Importing this loads neither a Kafka client nor the command line; names load what they need when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfd_stream.errors import (
        BrokerRefusedError,
        BrokerUnavailableError,
        ChecksumError,
        FencedError,
        FormatError,
        NewerFormatError,
        NoSnapshotError,
        ObjectExistsError,
        ObjectMissingError,
        RefusedStateError,
        RowDecodeError,
        SettingsError,
        SfdError,
        StoreError,
        StoreRefusedError,
        StoreUnavailableError,
        TooManyBadMessagesError,
        UnmergeableError,
    )
    from sfd_stream.reader.merged import MergedSketch
    from sfd_stream.reader.reader import SnapshotReader
    from sfd_stream.reader.transformer import SketchTransformer
    from sfd_stream.sketch.drift import Drift, Significance, significance
    from sfd_stream.sketch.estimator import FrequentDirections, NotFittedError, SparseFrequentDirections
    from sfd_stream.sketch.intervals import Interval, Intervals
    from sfd_stream.sketch.measures import covariance_error, projection_error
    from sfd_stream.sketch.scoring.causes import Cause, Explanation
    from sfd_stream.sketch.scoring.histogram import ScoreHistogram
    from sfd_stream.sketch.scoring.score import Scorer, Scores
    from sfd_stream.sketch.sketch import PCA, Sketch
    from sfd_stream.sketch.synthetic import paper_synthetic
    from sfd_stream.wire.columns import FixedColumns, GrowingColumns, HashedColumns
    from sfd_stream.wire.features import FeatureMap
    from sfd_stream.wire.rows.decode import decode, encode_row, encode_rows

__version__ = "0.2.0"
"""The one place that has the version: package, image and chart take theirs from here."""

_HOMES = {
    "BrokerRefusedError": "errors",
    "BrokerUnavailableError": "errors",
    "Cause": "sketch.scoring.causes",
    "ChecksumError": "errors",
    "Drift": "sketch.drift",
    "Explanation": "sketch.scoring.causes",
    "FeatureMap": "wire.features",
    "FencedError": "errors",
    "FixedColumns": "wire.columns",
    "FormatError": "errors",
    "FrequentDirections": "sketch.estimator",
    "GrowingColumns": "wire.columns",
    "HashedColumns": "wire.columns",
    "Interval": "sketch.intervals",
    "Intervals": "sketch.intervals",
    "MergedSketch": "reader.merged",
    "NewerFormatError": "errors",
    "NoSnapshotError": "errors",
    "NotFittedError": "sketch.estimator",
    "ObjectExistsError": "errors",
    "ObjectMissingError": "errors",
    "PCA": "sketch.sketch",
    "RefusedStateError": "errors",
    "RowDecodeError": "errors",
    "ScoreHistogram": "sketch.scoring.histogram",
    "Scorer": "sketch.scoring.score",
    "Scores": "sketch.scoring.score",
    "SettingsError": "errors",
    "SfdError": "errors",
    "Significance": "sketch.drift",
    "Sketch": "sketch.sketch",
    "SketchTransformer": "reader.transformer",
    "SnapshotReader": "reader.reader",
    "SparseFrequentDirections": "sketch.estimator",
    "StoreError": "errors",
    "StoreRefusedError": "errors",
    "StoreUnavailableError": "errors",
    "TooManyBadMessagesError": "errors",
    "UnmergeableError": "errors",
    "covariance_error": "sketch.measures",
    "decode": "wire.rows.decode",
    "encode_row": "wire.rows.decode",
    "encode_rows": "wire.rows.decode",
    "paper_synthetic": "sketch.synthetic",
    "projection_error": "sketch.measures",
    "significance": "sketch.drift",
}

__all__ = [
    "PCA",
    "BrokerRefusedError",
    "BrokerUnavailableError",
    "Cause",
    "ChecksumError",
    "Drift",
    "Explanation",
    "FeatureMap",
    "FencedError",
    "FixedColumns",
    "FormatError",
    "FrequentDirections",
    "GrowingColumns",
    "HashedColumns",
    "Interval",
    "Intervals",
    "MergedSketch",
    "NewerFormatError",
    "NoSnapshotError",
    "NotFittedError",
    "ObjectExistsError",
    "ObjectMissingError",
    "RefusedStateError",
    "RowDecodeError",
    "ScoreHistogram",
    "Scorer",
    "Scores",
    "SettingsError",
    "SfdError",
    "Significance",
    "Sketch",
    "SketchTransformer",
    "SnapshotReader",
    "SparseFrequentDirections",
    "StoreError",
    "StoreRefusedError",
    "StoreUnavailableError",
    "TooManyBadMessagesError",
    "UnmergeableError",
    "covariance_error",
    "decode",
    "encode_row",
    "encode_rows",
    "paper_synthetic",
    "projection_error",
    "significance",
]


if not TYPE_CHECKING:  # a type checker would take any name, mistyped ones too, for one that __getattr__ finds

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
