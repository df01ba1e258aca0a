"""Features to signed columns by MurmurHash3 (x86, 32 bits) of their UTF-8 text; a number's is its decimal.

For seed 0 column and sign are those of scikit-learn's `FeatureHasher`. Text goes through mmh3; packed
numbers are hashed by numpy without becoming Python objects, to the same columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

import mmh3
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sfd_stream.sketch.rows import Float, Index, Int

Word = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class HashedNames:
    """Features that are hashed already, with the seed of their columns.

    Their texts, in UTF-8, are kept only for columns that learn names.
    """

    hashes: npt.NDArray[np.int32]
    texts: bytes
    starts: Int
    ends: Int

    def __len__(self) -> int:
        return len(self.hashes)

    def __getitem__(self, which: Any) -> Any:
        """The text of one feature, or the features that a mask marks."""
        if not isinstance(which, np.ndarray):
            return self.texts[self.starts[which] : self.ends[which]].decode()
        if not len(self.ends):
            return HashedNames(self.hashes[which], self.texts, self.starts, self.ends)
        return HashedNames(self.hashes[which], self.texts, self.starts[which], self.ends[which])


def signed_columns(features: Any, d: int, seed: int) -> tuple[Index, Float]:
    """Column and sign of each feature. With the signed hash h: |h| mod d, and the sign of h (0 counts as +)."""
    if isinstance(features, HashedNames):
        hashes = features.hashes.astype(np.int64)
    elif isinstance(features, list):
        hashes = _hash_texts(features, seed)
    else:
        hashes = hash_decimals(features.astype(np.uint32), seed).view(np.int32).astype(np.int64)
    return (np.abs(hashes) % d).astype(np.int32), np.where(hashes < 0, -1.0, 1.0)


def _hash_texts(features: Sequence[str | int], seed: int) -> Int:
    hashes = map(mmh3.hash, map(str, features), repeat(seed))
    return np.fromiter(hashes, dtype=np.int64, count=len(features))


def hash_decimals(numbers: Word, seed: int) -> Word:
    """MurmurHash3_x86_32 of each number's decimal digits, as an unsigned word."""
    digits = np.ones(len(numbers), dtype=np.int8)
    for power in range(1, 10):
        digits += numbers >= 10**power
    hashes = np.empty(len(numbers), dtype=np.uint32)
    for count in np.unique(digits).tolist():
        which = np.flatnonzero(digits == count)
        hashes[which] = _murmur3(_texts(numbers[which], count), seed)
    return hashes


def _texts(numbers: Word, count: int) -> list[Word]:
    """The digits of numbers that all have `count` digits, the first digit first, as ASCII codes."""
    codes: list[Word] = []
    for _ in range(count):
        rest = numbers // np.uint32(10)
        codes.append(numbers - rest * np.uint32(10) + np.uint32(48))
        numbers = rest
    return codes[::-1]


def _murmur3(codes: list[Word], seed: int) -> Word:
    """The hash of many texts of one length: `codes[k]` holds the k-th byte of each."""
    state = np.full(len(codes[0]), seed, dtype=np.uint32)
    whole = len(codes) // 4 * 4
    for at in range(0, whole, 4):
        state = _rotate(state ^ _mix(_word(codes[at : at + 4])), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    if whole < len(codes):
        state = state ^ _mix(_word(codes[whole:]))
    state = state ^ np.uint32(len(codes))
    state = (state ^ state >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    state = (state ^ state >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return state ^ state >> np.uint32(16)


def _word(codes: list[Word]) -> Word:
    word = codes[0]
    for place, code in enumerate(codes[1:], start=1):
        word = word | code << np.uint32(8 * place)
    return word


def _mix(word: Word) -> Word:
    return _rotate(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _rotate(word: Word, bits: int) -> Word:
    return word << np.uint32(bits) | word >> np.uint32(32 - bits)
