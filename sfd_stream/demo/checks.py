"""The claims of the demo, each checked against the rows that were sent. Needs no broker and no store."""

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
"""Relative error of the true singular values computed here, as a share of the largest squared one."""


_KEPT_EVERY = 4
"""Every fourth docstring is not sent."""

Bag = Mapping[str, int]
"""A row: how often it has each word."""


class DemoError(SfdError):
    """A claim of the demo did not hold."""


Encode = Callable[[Iterable[Bag]], Iterable[RowMessage]]


@dataclass(frozen=True)
class Truth:
    """The rows that were sent, known exactly, and how their messages are encoded and decoded."""

    messages: list[RowMessage]
    encode: Encode = bag_messages
    decoder: Decoder = field(default_factory=MsgpackDecoder)
    columns: HashedColumns = _COLUMNS
    kept: Sequence[Bag] = ()
    """Rows of the same kind that are not sent: new rows, to be scored."""

    @classmethod
    def of(cls, bags: Sequence[Bag], encode: Encode, decoder: Decoder, columns: HashedColumns) -> Truth:
        fed = [bag for number, bag in enumerate(bags, start=1) if number % _KEPT_EVERY]
        return cls(list(encode(fed)), encode, decoder, columns, bags[_KEPT_EVERY - 1 :: _KEPT_EVERY])

    @cached_property
    def block(self) -> RowBlock:
        return self.decoded()

    def decoded(self) -> RowBlock:
        return self._decoded(self.messages).block

    def rows_of(self, bags: Iterable[Bag]) -> tuple[RowBlock, Mapping[int, str]]:
        """Bags as rows, and the names of their columns."""
        found = self._decoded(self.encode(bags))
        assert isinstance(found.columns, HashedColumns)
        return found.block, found.columns.names

    def _decoded(self, messages: Iterable[RowMessage]) -> DecodedBatch:
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
        """The k largest singular values in descending order."""
        start = np.random.default_rng(0).standard_normal(min(self.block.csr().shape))
        found = svds(self.block.csr(), k=k, v0=start, return_singular_vectors=False)
        return np.asarray(np.sort(found)[::-1])


def truth() -> Truth:
    """Each docstring as a row in msgpack."""
    return Truth.of(bags(COLUMNS, HASH_SEED), bag_messages, MsgpackDecoder(), _COLUMNS)


def truth_of_events() -> Truth:
    """Each docstring as an event in JSON: `{"words": [...]}`."""
    mapping = FeatureMap()

    def encode(rows: Iterable[Bag]) -> Iterable[RowMessage]:
        events = ({"words": list(Counter(bag).elements())} for bag in rows)
        return json_messages((json.dumps(event).encode() for event in events), mapping)

    found = bags(COLUMNS, HASH_SEED, prefix="words=")
    return Truth.of(found, encode, RecordDecoder(PlainReader(read_json)), replace(_COLUMNS, mapping=mapping))


@dataclass(frozen=True)
class Claim:
    """A number of the sketch, and the same number of the input."""

    name: str
    found: float
    fed: float


def check_counters(truth: Truth, sketch: Sketch) -> list[Claim]:
    """Compares the exact counters: no row is lost, and none is counted twice."""
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
    """Errors as shares of ||A||F^2."""

    true: float
    certified: float


def check_error(truth: Truth, sketch: Sketch) -> Errors:
    """Checks that the certified error is not less than the true error."""
    true = covariance_error(truth.block.csr(), sketch)
    certified = sketch.delta / sketch.squared_frobenius
    if true > certified:
        raise DemoError(f"the true error, {true:.3%} of ||A||F^2, exceeds the certified {certified:.3%}")
    return Errors(true, certified)


def check_spectrum(truth: Truth, sketch: Sketch, k: int) -> Float:
    """The true singular values. Checks that each lies in the certified band of the sketch."""
    squares, true = sketch.singular_values(k) ** 2, truth.singular_values(k)
    slack = _ROUNDING * float(true[0]) ** 2 + sketch.rounding
    outside = np.flatnonzero((true**2 < squares - slack) | (true**2 > squares + sketch.delta + slack))
    if len(outside):
        raise DemoError(f"singular value {outside[0] + 1} of the input lies outside the band that the sketch certifies")
    return true


def directions(sketch: Sketch, names: Mapping[int, str], k: int, words: int) -> list[list[str]]:
    """The k strongest directions around the mean, each as its strongest words."""
    columns = np.fromiter(names, dtype=np.int64, count=len(names))
    signs = np.ones(sketch.d)
    signs[columns] = signed_columns(list(names.values()), sketch.d, HASH_SEED)[1]
    found = signed(sketch.pca(k).components * signs)
    return [[names.get(int(c), f"column {c}") for c in np.argsort(-weights)[:words]] for weights in found]


def speed(truth: Truth, clock: Callable[[], float]) -> float:
    """Rows per second of this machine: decodes and sketches the same messages again, in this process, on one core."""
    began = clock()
    SparseFrequentDirections(ell=ELL).partial_fit(truth.decoded().csr()).sketch()
    return truth.rows / (clock() - began)
