"""A live, certified low-rank sketch of a Kafka topic of sparse rows, by Sparse Frequent Directions.

Importing this package loads neither a Kafka client nor the command line. Each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # type checkers read only these; "as" makes a name public for them
    from sfd_stream.errors import BrokerRefusedError as BrokerRefusedError
    from sfd_stream.errors import BrokerUnavailableError as BrokerUnavailableError
    from sfd_stream.errors import ChecksumError as ChecksumError
    from sfd_stream.errors import FencedError as FencedError
    from sfd_stream.errors import FormatError as FormatError
    from sfd_stream.errors import NewerFormatError as NewerFormatError
    from sfd_stream.errors import NoSnapshotError as NoSnapshotError
    from sfd_stream.errors import ObjectExistsError as ObjectExistsError
    from sfd_stream.errors import ObjectMissingError as ObjectMissingError
    from sfd_stream.errors import RefusedStateError as RefusedStateError
    from sfd_stream.errors import RowDecodeError as RowDecodeError
    from sfd_stream.errors import SettingsError as SettingsError
    from sfd_stream.errors import SfdError as SfdError
    from sfd_stream.errors import StoreError as StoreError
    from sfd_stream.errors import StoreRefusedError as StoreRefusedError
    from sfd_stream.errors import StoreUnavailableError as StoreUnavailableError
    from sfd_stream.errors import TooManyBadMessagesError as TooManyBadMessagesError
    from sfd_stream.errors import UnmergeableError as UnmergeableError
    from sfd_stream.reader.merged import MergedSketch as MergedSketch
    from sfd_stream.reader.reader import SnapshotReader as SnapshotReader
    from sfd_stream.reader.transformer import SketchTransformer as SketchTransformer
    from sfd_stream.sketch.drift import Drift as Drift
    from sfd_stream.sketch.drift import Significance as Significance
    from sfd_stream.sketch.drift import significance as significance
    from sfd_stream.sketch.estimator import FrequentDirections as FrequentDirections
    from sfd_stream.sketch.estimator import NotFittedError as NotFittedError
    from sfd_stream.sketch.estimator import SparseFrequentDirections as SparseFrequentDirections
    from sfd_stream.sketch.intervals import Interval as Interval
    from sfd_stream.sketch.intervals import Intervals as Intervals
    from sfd_stream.sketch.measures import covariance_error as covariance_error
    from sfd_stream.sketch.measures import projection_error as projection_error
    from sfd_stream.sketch.scoring.causes import Cause as Cause
    from sfd_stream.sketch.scoring.causes import Explanation as Explanation
    from sfd_stream.sketch.scoring.histogram import ScoreHistogram as ScoreHistogram
    from sfd_stream.sketch.scoring.score import Scorer as Scorer
    from sfd_stream.sketch.scoring.score import Scores as Scores
    from sfd_stream.sketch.sketch import PCA as PCA
    from sfd_stream.sketch.sketch import Sketch as Sketch
    from sfd_stream.sketch.synthetic import paper_synthetic as paper_synthetic
    from sfd_stream.wire.columns import FixedColumns as FixedColumns
    from sfd_stream.wire.columns import GrowingColumns as GrowingColumns
    from sfd_stream.wire.columns import HashedColumns as HashedColumns
    from sfd_stream.wire.features import FeatureMap as FeatureMap
    from sfd_stream.wire.rows.decode import decode as decode
    from sfd_stream.wire.rows.encode import encode_row as encode_row
    from sfd_stream.wire.rows.encode import encode_rows as encode_rows

__version__ = "0.2.0"
"""The version. Package, image and chart read it from here."""

_NAMES = {
    "errors": (
        "BrokerRefusedError BrokerUnavailableError ChecksumError FencedError FormatError NewerFormatError"
        " NoSnapshotError ObjectExistsError ObjectMissingError RefusedStateError RowDecodeError SettingsError"
        " SfdError StoreError StoreRefusedError StoreUnavailableError TooManyBadMessagesError UnmergeableError"
    ),
    "reader.merged": "MergedSketch",
    "reader.reader": "SnapshotReader",
    "reader.transformer": "SketchTransformer",
    "sketch.drift": "Drift Significance significance",
    "sketch.estimator": "FrequentDirections NotFittedError SparseFrequentDirections",
    "sketch.intervals": "Interval Intervals",
    "sketch.measures": "covariance_error projection_error",
    "sketch.scoring.causes": "Cause Explanation",
    "sketch.scoring.histogram": "ScoreHistogram",
    "sketch.scoring.score": "Scorer Scores",
    "sketch.sketch": "PCA Sketch",
    "sketch.synthetic": "paper_synthetic",
    "wire.columns": "FixedColumns GrowingColumns HashedColumns",
    "wire.features": "FeatureMap",
    "wire.rows.decode": "decode",
    "wire.rows.encode": "encode_row encode_rows",
}
"""The public names, by the module from which each is loaded."""

_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = list(_HOMES)


if not TYPE_CHECKING:  # else a type checker would accept any name, because of __getattr__

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
