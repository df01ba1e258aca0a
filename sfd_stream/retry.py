"""The delay between two attempts. Pure: attempts and randomness come in as arguments."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """Delays that double from `first_s` up to `longest_s`, times a jitter (in programs 0.5 to 1).

    >>> [Backoff(0.5, 3.0).delay_s(failures, jitter=1.0) for failures in (1, 2, 3, 4)]
    [0.5, 1.0, 2.0, 3.0]
    """

    first_s: float
    longest_s: float

    def delay_s(self, failures: int, jitter: float) -> float:
        """The delay before the next attempt, after this many failures in a row."""
        assert failures >= 1
        assert 0 < jitter <= 1
        return min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 30)) * jitter
