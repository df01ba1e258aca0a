"""What a column index means: three modes, each a frozen value.

Decoding never changes a mode. What a batch teaches (a wider matrix, names of columns) comes back as a new
value, which the caller adopts when it keeps the batch; it depends on the rows alone, not on how they were
batched.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from sfd_stream.sketch.rows import D_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sfd_stream.sketch.rows import Float, Index, Int, RowBlock
    from sfd_stream.wire.row_parts import Mask

NAME_CHARS_MAX = 64
"""A kept name is cut to this many characters, so a bounded number of names is bounded in bytes too."""

Growth = tuple[tuple[int, int], ...]
"""(row of the block, d from this row on), ascending."""


@dataclass(frozen=True, slots=True)
class FixedColumns:
    """d is given; an index outside [0, d) is a bad row."""

    d: int

    def __post_init__(self) -> None:
        assert 1 <= self.d <= D_MAX

    @property
    def end(self) -> int:
        """The first index that is not a column."""
        return self.d


@dataclass(frozen=True, slots=True)
class GrowingColumns:
    """d grows at the row that needs it, to the next power of two or d_max; an index from d_max on is bad."""

    d: int
    d_max: int

    def __post_init__(self) -> None:
        assert 1 <= self.d <= self.d_max <= D_MAX

    @property
    def end(self) -> int:
        """The first index that can never be a column."""
        return self.d_max

    def grown(self, block: RowBlock) -> tuple[GrowingColumns, Growth]:
        """The mode after these rows, and where d grew on the way."""
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
    """

    d: int
    seed: int = 0
    names_max: int = 65_536
    keep_names: bool = True
    names: Mapping[int, str] = field(default_factory=dict)
    _named: Mask = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        assert 1 <= self.d <= D_MAX
        assert 0 <= self.seed < 2**32
        named = np.zeros(self.d if self.keep_names else 0, dtype=bool)  # a byte a column: less than a row of a sketch
        if self.keep_names:
            named[list(self.names)] = True
        object.__setattr__(self, "_named", named)

    @property
    def end(self) -> int:
        return self.d

    @property
    def learning(self) -> bool:
        """Whether there is room for names."""
        return self.keep_names and len(self.names) < min(self.names_max, self.d)

    def learned(self, columns: Index, values: Float, texts: Callable[[Int], list[str]]) -> HashedColumns:
        """The mode after these non-zeros, in the order of the bytes; an explicit zero names nothing."""
        if not self.learning:
            return self
        new = np.flatnonzero(~self._named[columns] & (values != 0))
        if not len(new):
            return self
        firsts = np.sort(new[np.unique(columns[new], return_index=True)[1]])[: self.names_max - len(self.names)]
        names = (text[:NAME_CHARS_MAX] for text in texts(firsts))
        return replace(self, names={**self.names, **dict(zip(columns[firsts].tolist(), names, strict=True))})


Columns = FixedColumns | GrowingColumns | HashedColumns
