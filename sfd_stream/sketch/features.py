"""The names of a sketch's columns: the interface that the mathematics needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, Self, TypeGuard

import numpy as np

from sfd_stream.sketch.rows import Float, RowBlock


class Features(Protocol):
    """Named features and their columns. `HashedColumns` is one."""

    @property
    def d(self) -> int: ...

    @property
    def names(self) -> Mapping[int, str]:
        """The names that are known, by column."""

    def block_of(self, rows: Sequence[Mapping[Any, Any]]) -> tuple[RowBlock, Self]:
        """The rows of mappings from names to values, and the features with the names learned from them."""

    def column_of(self, name: str) -> tuple[int, float]:
        """The column of a name, and the name's sign in that column."""

    def signs(self) -> Float:
        """The sign of each column's name; 1 if the name is unknown."""

    def known(self) -> Self:
        """A copy that learns no further names, for a sketch to keep."""

    def joined(self, other: Self) -> Self:
        """The features of rows of both, with the names of both. ValueError if their columns do not mean the same."""


def listed(X: Any) -> Any:
    """X, as a list where it is an iterator, or a one-dimensional array or Series of objects."""
    if isinstance(X, Mapping) and not hasattr(X, "shape"):  # scipy's dictionary of keys is a matrix
        raise ValueError("one mapping is one row: give a list of them, [row]")
    objects = getattr(X, "dtype", None) == np.dtype(object) and np.ndim(X) == 1
    return list(X) if objects or isinstance(X, Iterator) else X


def are_mappings(X: Any, features: Features | None) -> TypeGuard[Sequence[Mapping[Any, Any]]]:
    """Whether X is a list or tuple of mappings (by its first; an empty list is, where there are features)."""
    if not isinstance(X, list | tuple):
        return False
    return isinstance(X[0], Mapping) if X else features is not None
