"""What the demo claims, each claim checked against the rows that were fed in. No broker, no store here."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.sparse.linalg import svds

from sfd_stream.demo.corpus import bags
from sfd_stream.errors import SfdError
from sfd_stream.sketch.estimator import SparseFrequentDirections
from sfd_stream.sketch.measures import covariance_error
from sfd_stream.sketch.rows import Float, RowBlock
from sfd_stream.sketch.sketch import Sketch, signed
from sfd_stream.tools.produce import RowMessage, bag_messages, json_messages
from sfd_stream.wire.columns import HashedColumns
from sfd_stream.wire.features import FeatureMap
from sfd_stream.wire.formats.from_json import read_json
from sfd_stream.wire.formats.records import Decoder, MsgpackDecoder, PlainReader, RecordDecoder
from sfd_stream.wire.hashing import signed_columns
from sfd_stream.wire.rows.decode import DecodedBatch
from sfd_stream.wire.rows.part import RowLimits

COLUMNS = 2048
ELL = 64
HASH_SEED = 0
_COLUMNS = HashedColumns(COLUMNS, HASH_SEED)
_ROUNDING = 1e-9
"""Of the largest squared singular value: how exactly the true ones are computed here."""


_KEPT_EVERY = 4
"""Every fourth docstring is not fed in."""

Bag = Mapping[str, int]
"""A row: how often it has each word."""


class DemoError(SfdError):
    """A claim of the demo did not hold."""


def _encode(bags: Iterable[Bag]) -> list[RowMessage]:
    return list(bag_messages(bags))


@dataclass(frozen=True)
class Truth:
    """What was fed in, known exactly, and how messages are encoded and decoded."""

    block: RowBlock
    messages: list[RowMessage]
    decoder: Decoder = field(default_factory=MsgpackDecoder)
    columns: HashedColumns = _COLUMNS
    encode: Callable[[Iterable[Bag]], list[RowMessage]] = _encode
    kept: Sequence[Bag] = ()
    """Rows of the same kind that are not fed in: new ones, to be scored."""

    @classmethod
    def of(
        cls,
        bags: Sequence[Bag],
        encode: Callable[[Iterable[Bag]], list[RowMessage]],
        decoder: Decoder,
        columns: HashedColumns,
    ) -> Truth:
        fed = [bag for number, bag in enumerate(bags, start=1) if number % _KEPT_EVERY]
        nothing = RowBlock.from_arrays([0], [], [], COLUMNS)
        found = cls(nothing, encode(fed), decoder, columns, encode, bags[_KEPT_EVERY - 1 :: _KEPT_EVERY])
        return replace(found, block=found.decoded())

    def decoded(self) -> RowBlock:
        return self._decoded(self.messages).block

    def rows_of(self, bags: Iterable[Bag]) -> tuple[RowBlock, Mapping[int, str]]:
        """Bags as rows, and the names of their columns."""
        found = self._decoded(self.encode(bags))
        assert isinstance(found.columns, HashedColumns)
        return found.block, found.columns.names

    def _decoded(self, messages: Sequence[RowMessage]) -> DecodedBatch:
        return self.decoder.decode([message.value for message in messages], self.columns, RowLimits())

    @property
    def rows(self) -> int:
        return self.block.rows

    @cached_property
    def squared_frobenius(self) -> float:
        return float(self.block.values @ self.block.values)

    @cached_property
    def column_sums(self) -> Float:
        return np.asarray(self.block.csr().T @ np.ones(self.rows))

    def singular_values(self, k: int) -> Float:
        """The k largest, the largest first."""
        start = np.random.default_rng(0).standard_normal(min(self.block.csr().shape))
        found = svds(self.block.csr(), k=k, v0=start, return_singular_vectors=False)
        return np.asarray(np.sort(found)[::-1])


def truth() -> Truth:
    """Each docstring as a row in msgpack."""
    return Truth.of(bags(COLUMNS, HASH_SEED), _encode, MsgpackDecoder(), _COLUMNS)


def truth_of_events() -> Truth:
    """Each docstring as an event in JSON: `{"words": [...]}`."""
    mapping = FeatureMap()

    def encode(rows: Iterable[Bag]) -> list[RowMessage]:
        events = ({"words": list(Counter(bag).elements())} for bag in rows)
        return list(json_messages((json.dumps(event).encode() for event in events), mapping))

    found = bags(COLUMNS, HASH_SEED, prefix="words=")
    return Truth.of(found, encode, RecordDecoder(PlainReader(read_json)), replace(_COLUMNS, mapping=mapping))


@dataclass(frozen=True)
class Claim:
    """A number of the sketch beside that of the input."""

    name: str
    found: float
    fed: float


def check_counters(truth: Truth, sketch: Sketch) -> list[Claim]:
    """Not one row lost, not one counted twice: numbers that are exact."""
    sums = np.asarray(sketch.column_sums)
    differ = int(np.count_nonzero(sums != truth.column_sums)) if sums.shape == truth.column_sums.shape else COLUMNS
    claims = [
        Claim("rows", sketch.rows, truth.rows),
        Claim("non-zeros", sketch.nnz, truth.block.nnz),
        Claim("squared Frobenius norm", sketch.squared_frobenius, truth.squared_frobenius),
        Claim("columns of equal sum", COLUMNS - differ, COLUMNS),
    ]
    wrong = [
        f"{claim.name} {claim.found:,.0f} instead of {claim.fed:,.0f}" for claim in claims if claim.found != claim.fed
    ]
    if wrong:
        raise DemoError(f"the counts of the sketch differ from the input: {', '.join(wrong)}")
    return claims


@dataclass(frozen=True)
class Errors:
    """As shares of ||A||F^2."""

    true: float
    certified: float


def check_error(truth: Truth, sketch: Sketch) -> Errors:
    """The error that the sketch certifies is never less than the true one."""
    true = covariance_error(truth.block.csr(), sketch)
    certified = sketch.delta / sketch.squared_frobenius
    if true > certified:
        raise DemoError(f"the true error, {true:.3%} of ||A||F^2, exceeds the certified {certified:.3%}")
    return Errors(true, certified)


def check_spectrum(truth: Truth, sketch: Sketch, k: int) -> Float:
    """The true singular values, each of which lies in the band that the sketch gives for it."""
    squares, true = sketch.singular_values(k) ** 2, truth.singular_values(k)
    slack = _ROUNDING * float(true[0]) ** 2 + sketch.rounding
    outside = np.flatnonzero((true**2 < squares - slack) | (true**2 > squares + sketch.delta + slack))
    if len(outside):
        raise DemoError(f"singular value {outside[0] + 1} of the input lies outside the band that the sketch certifies")
    return true


def directions(sketch: Sketch, names: Mapping[int, str], k: int, words: int) -> list[list[str]]:
    """The k strongest directions around the mean, each by the words that come together in it."""
    columns = np.fromiter(names, dtype=np.int64, count=len(names))
    signs = np.ones(sketch.d)
    signs[columns] = signed_columns(list(names.values()), sketch.d, HASH_SEED)[1]
    found = signed(sketch.pca(k).components * signs)
    return [[names.get(int(c), f"column {c}") for c in np.argsort(-weights)[:words]] for weights in found]


def speed(truth: Truth, clock: Callable[[], float]) -> float:
    """Rows a second of this machine: the same messages decoded and sketched again, in this process, on one core."""
    began = clock()
    SparseFrequentDirections(ell=ELL).partial_fit(truth.decoded().csr()).sketch()
    return truth.rows / (clock() - began)
