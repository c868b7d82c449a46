"""The durations of a model's calls: when one takes so long that a second call is the faster way to a reply."""

from __future__ import annotations

from math import ceil, log

STRAGGLER_TIMES = 3
"""A call that takes this many times the 95th percentile is a straggler."""
LEAST_STRAGGLER_S = 5.0
"""A call that takes less is never one."""
MIN_REPLIES = 3
"""Number of replies before which no call is a straggler: a slow model's first calls may all take long."""

_LEAST_S = LEAST_STRAGGLER_S / STRAGGLER_TIMES
"""Shorter durations need not be distinguished."""
_GROWTH = 1.05
"""Ratio of the bounds of neighbouring buckets, and so the relative error of a percentile."""


class Latencies:
    """A histogram of the durations of all answered calls to one model."""

    def __init__(self) -> None:
        self._count = 0
        self._slow: dict[int, int] = {}
        """Number of durations by bucket; those below the first bucket are in none."""
        self._straggler_s = LEAST_STRAGGLER_S
        self._computed_at = 0
        """The count for which the percentile was computed last."""

    def add(self, duration_s: float) -> None:
        """Add the duration of an answered call."""
        self._count += 1
        if duration_s > _LEAST_S:
            bucket = ceil(log(duration_s / _LEAST_S, _GROWTH))
            self._slow[bucket] = self._slow.get(bucket, 0) + 1

    @property
    def count(self) -> int:
        """Number of answered calls."""
        return self._count

    @property
    def straggler_s(self) -> float | None:
        """Duration from which a call is a straggler; None while too few calls were answered."""
        if self._count < MIN_REPLIES:
            return None
        if self._slow and self._count > self._computed_at * 1.02:  # a walk over the buckets takes 10 us
            self._computed_at = self._count
            self._straggler_s = max(LEAST_STRAGGLER_S, STRAGGLER_TIMES * self._percentile_s())
        return self._straggler_s

    def _percentile_s(self) -> float:
        """Return the 95th percentile: the upper bound of its bucket."""
        above = self._count - ceil(0.95 * self._count)
        for bucket in sorted(self._slow, reverse=True):
            above -= self._slow[bucket]
            if above < 0:
                return float(_LEAST_S * _GROWTH**bucket)
        return _LEAST_S
