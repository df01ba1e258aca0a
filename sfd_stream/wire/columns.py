"""What a column index means: three modes, each a frozen value.

Decoding never changes a mode. What a batch adds (a wider matrix, names of columns) comes back as a new value, which
the caller adopts if it keeps the batch. The new value depends on the rows alone, not on how they were batched.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sfd_stream.errors import RowDecodeError
from sfd_stream.sketch.rows import D_MAX, VALUE_MAX, RowBlock, whole
from sfd_stream.wire.features import FeatureMap, differences
from sfd_stream.wire.flatten import Flattener
from sfd_stream.wire.hashing import signed_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sfd_stream.sketch.rows import Float, Index, Int
    from sfd_stream.wire.rows.part import Mask

NAME_CHARS_MAX = 64
"""A kept name is cut to this many characters, so that the number of names also bounds their bytes."""

Growth = tuple[tuple[int, int], ...]
"""(row of the block, d from this row on), ascending."""


@dataclass(frozen=True, slots=True)
class FixedColumns:
    """d is given; an index outside [0, d) is a bad row.

    >>> from sfd_stream import FixedColumns, decode, encode_row
    >>> decode([encode_row([3, 17], [1.0, 2.5])], FixedColumns(20)).block.csr().shape
    (1, 20)
    """

    kind: ClassVar = "fixed"
    d: int

    def __post_init__(self) -> None:
        _check_d(self.d)

    @property
    def end(self) -> int:
        """The first index that is not a column."""
        return self.d


@dataclass(frozen=True, slots=True)
class GrowingColumns:
    """d grows at the row that needs it, to the next power of two or d_max; an index from d_max on is bad.

    >>> from sfd_stream import GrowingColumns, decode, encode_row
    >>> columns = GrowingColumns(d=4, d_max=1024)
    >>> decode([encode_row([3, 17], [1.0, 2.5])], columns).columns
    GrowingColumns(d=32, d_max=1024)
    """

    kind: ClassVar = "growing"
    d: int
    d_max: int

    def __post_init__(self) -> None:
        _check_d(self.d)
        if whole("d_max", self.d_max, self.d) > D_MAX:
            raise ValueError(f"d_max must be at most {D_MAX}, not {self.d_max}")

    @property
    def end(self) -> int:
        """The first index that can never be a column."""
        return self.d_max

    def grown(self, block: RowBlock) -> tuple[GrowingColumns, Growth]:
        """The mode after these rows, and where d grew on the way.

        >>> block = decode([encode_row([40], [1.0])], columns).block
        >>> columns.grown(block)
        (GrowingColumns(d=64, d_max=1024), ((0, 64),))
        """
        filled = np.flatnonzero(np.diff(block.indptr))
        largest = np.maximum.accumulate(block.indices[block.indptr[filled + 1] - 1])
        d, growth = self.d, []
        while (at := int(np.searchsorted(largest, d))) < len(largest):
            d = min(1 << int(largest[at]).bit_length(), self.d_max)
            growth.append((int(filled[at]), d))
        return (replace(self, d=d) if growth else self), tuple(growth)


@dataclass(frozen=True, slots=True)
class HashedColumns:
    """Features (strings or integers) are hashed to d signed columns; a column keeps the first name seen.

    `names` is plain data for a checkpoint: column to name, in the order learned, at most `names_max` of them,
    each of at most `NAME_CHARS_MAX` characters. It is never changed in place.

    As `features` of a sketcher it takes rows as mappings from names to values:

    >>> from sfd_stream import HashedColumns, SparseFrequentDirections
    >>> columns = HashedColumns(1024)
    >>> sketcher = SparseFrequentDirections(ell=4, features=columns)
    >>> sketch = sketcher.partial_fit([{"sun": 2, "sea": 1}, {"moon": 1}]).sketch()
    >>> [name for name, weight in sketch.top(1, columns=2)[0]]
    ['sun', 'sea']

    With a `mapping`, rows are records of named fields, which the mapping makes features of:

    >>> from sfd_stream import FeatureMap
    >>> events = HashedColumns(1024, mapping=FeatureMap.from_settings({"exclude": ["id"]}))
    >>> found = SparseFrequentDirections(ell=4, features=events).fit([{"id": 1, "sky": {"sun": 2}, "sea": "calm"}])
    >>> [name for name, weight in found.sketch().top(1, columns=2)[0]]
    ['sky.sun', 'sea=calm']
    """

    kind: ClassVar = "hashed"
    d: int
    seed: int = 0
    names_max: int = 65_536
    keep_names: bool = True
    names: Mapping[int, str] = field(default_factory=dict)
    mapping: FeatureMap | None = None
    """How records become features; None where rows have features already."""
    _named: Mask | None = field(init=False, repr=False, compare=False)
    """Which columns have a name; None until it is first needed."""

    def __post_init__(self) -> None:
        _check_d(self.d)
        if whole("seed", self.seed, 0) >= 2**32:
            raise ValueError(f"seed must be below 2^32, not {self.seed}")
        object.__setattr__(self, "_named", None)

    @property
    def end(self) -> int:
        """The number of columns."""
        return self.d

    @property
    def learning(self) -> bool:
        """Whether there is room for names."""
        return self.keep_names and len(self.names) < min(self.names_max, self.d)

    def learned(self, columns: Index, values: Float, texts: Callable[[Int], list[str]]) -> HashedColumns:
        """The mode after these non-zeros, in the order of the bytes; an explicit zero names nothing.

        >>> import numpy as np
        >>> columns.learned(np.array([7]), np.array([1.0]), lambda places: ["sun"]).names
        {7: 'sun'}
        """
        if not self.learning:
            return self
        named = self._mask()
        new = np.flatnonzero(~named[columns] & (values != 0))
        if not len(new):
            return self
        firsts = np.sort(new[np.unique(columns[new], return_index=True)[1]])[: self.names_max - len(self.names)]
        names = (text[:NAME_CHARS_MAX] for text in texts(firsts))
        after = replace(self, names={**self.names, **dict(zip(columns[firsts].tolist(), names, strict=True))})
        named = named.copy()  # patched: building it from all names would cost more than the rest of a batch
        named[columns[firsts]] = True
        object.__setattr__(after, "_named", named)
        return after

    def _mask(self) -> Mask:
        """Which columns have a name: one byte for each column, less than a row of a sketch."""
        named = self._named
        if named is None:
            named = np.zeros(self.d, dtype=bool)
            named[list(self.names)] = True
            object.__setattr__(self, "_named", named)
        return named

    # -- as features of a sketch (see sketch.features) --

    def block_of(self, rows: Sequence[Mapping[Any, Any]]) -> tuple[RowBlock, HashedColumns]:
        """The rows of mappings from names to values, as `decode` makes them of messages, and the mode after them.

        >>> block, after = columns.block_of([{"sun": 2.0}, {"moon": 1.0, "sun": 0.5}])
        >>> block.rows, block.nnz, sorted(after.names.values())
        (2, 3, ['moon', 'sun'])
        """
        features, numbers, lengths = _features_in(rows) if self.mapping is None else _mapped(rows, self.mapping)
        values = np.fromiter(numbers, dtype=np.float64, count=len(features))
        indptr = np.cumsum([0, *lengths])
        columns, signs = signed_columns(features, self.d, self.seed)
        block = RowBlock.from_arrays(indptr, columns, values * signs, self.d)
        return block, self.learned(columns, values, lambda places: [str(features[at]) for at in places.tolist()])

    def column_of(self, name: str) -> tuple[int, float]:
        """The column of a feature, and the sign that its values have there.

        >>> column, sign = columns.column_of("sun")
        >>> 0 <= column < 1024, abs(sign)
        (True, 1.0)
        """
        columns, signs = signed_columns([name], self.d, self.seed)
        return int(columns[0]), float(signs[0])

    def signs(self) -> Float:
        """The sign of each column's name; 1 where there is none, or where it was cut so that its hash is unknown.

        >>> columns.signs().shape
        (1024,)
        """
        signs = np.ones(self.d)
        if self.names:
            columns = np.fromiter(self.names, dtype=np.int64, count=len(self.names))
            found, of_names = signed_columns(list(self.names.values()), self.d, self.seed)
            same = found == columns
            signs[columns[same]] = of_names[same]
        return signs

    def known(self) -> HashedColumns:
        """The same columns, which learn no further names.

        >>> columns.known().learning
        False
        """
        return HashedColumns(self.d, self.seed, names_max=0, keep_names=False, names=self.names, mapping=self.mapping)

    def joined(self, other: HashedColumns) -> HashedColumns:
        """The names of both; the first to name a column keeps it. ValueError if a name has another column there.

        >>> block, sun = columns.block_of([{"sun": 1}])
        >>> block, moon = columns.block_of([{"moon": 1}])
        >>> sorted(sun.joined(moon).names.values())
        ['moon', 'sun']
        """
        if (self.d, self.seed) != (other.d, other.seed):
            raise ValueError(
                "the columns of the two sketches do not mean the same: hashed to "
                f"{self.d} columns by hash seed {self.seed}, and to {other.d} by hash seed {other.seed}"
            )
        if self.mapping != other.mapping:
            described = [None if each is None else each.described() for each in (self.mapping, other.mapping)]
            raise ValueError(f"the columns of the two sketches do not mean the same: {differences(*described)}")
        return replace(self, names={**other.names, **self.names})


def _check_d(d: Any) -> None:
    if whole("d", d, 1) > D_MAX:
        raise ValueError(f"d must be at most {D_MAX}, not {d}")


def _features_in(rows: Sequence[Mapping[Any, Any]]) -> tuple[list[Any], Iterable[Any], list[int]]:
    """The names of all rows, their values, and how many each row has."""
    for number, row in enumerate(rows):
        _check_row(number, row)
    values = chain.from_iterable(row.values() for row in rows)
    return list(chain.from_iterable(rows)), values, list(map(len, rows))


def _mapped(rows: Sequence[Mapping[Any, Any]], mapping: FeatureMap) -> tuple[list[Any], Iterable[Any], list[int]]:
    """Like `_features_in`, for records. Each row must be one record, also if the mapping takes a part of it."""
    flattened, ends = Flattener(mapping), [0]
    for number, row in enumerate(rows):
        try:
            (record,) = mapping.records_of(row)
            flattened.add(record)
        except RowDecodeError as error:
            raise ValueError(f"row {number}: {error}") from None
        except ValueError:
            raise ValueError(f"row {number}: input.path must lead to one record") from None
        wrong = next((found for name in flattened.names[ends[-1] :] if (found := _wrong_name(name))), None)
        if wrong:
            raise ValueError(f"row {number}: {wrong.format(name='of a feature')}")
        ends.append(len(flattened.names))
    return flattened.names, flattened.values, np.diff(ends).tolist()


def _check_row(number: int, row: Any) -> None:
    """Raises ValueError, with the row's number, unless names and values are of kinds that a message may have."""
    if not hasattr(row, "items"):
        raise ValueError(f"row {number} is a {type(row).__name__}, not a mapping from names to values")
    for name, value in row.items():
        wrong = _wrong_name(name) or _wrong_value(value)
        if wrong:
            raise ValueError(f"row {number}: {wrong.format(name=f'{name!r:.60}')}")


def _wrong_name(name: Any) -> str | None:
    if type(name) is str and name.isascii():  # most are
        return None
    if isinstance(name, bool) or not isinstance(name, str | Integral):
        return f"the name {{name}} is a {type(name).__name__}, not a string or a whole number"
    try:
        str(name).encode()
    except UnicodeEncodeError:
        return "the name {name} is no valid Unicode text"
    return None


def _wrong_value(value: Any) -> str | None:
    if isinstance(value, int) and abs(value) > VALUE_MAX:
        return f"the value of {{name}} is too large: above {VALUE_MAX:g} in magnitude"
    if not isinstance(value, float | int | Real | np.bool_):
        return f"the value of {{name}} is a {type(value).__name__}, not a number"
    return None


Columns = FixedColumns | GrowingColumns | HashedColumns
