"""The durations of a model's calls: when one takes so long that a second call is the faster way to a reply."""

from __future__ import annotations

from microagents.base.durations import bucket_of, quantile_s

STRAGGLER_TIMES = 3
"""A call that takes this many times the 95th percentile is a straggler."""
LEAST_STRAGGLER_S = 5.0
"""A call that takes less is never one."""
MIN_REPLIES = 3
"""Number of replies before which no call is a straggler: a slow model's first calls may all take long."""


class Latencies:
    """The durations of all answered calls to one model."""

    def __init__(self) -> None:
        self.count = 0
        """Number of answered calls."""
        self._by_bucket: dict[int, int] = {}
        self._straggler_s = LEAST_STRAGGLER_S
        self._computed_at = 0
        """The count for which the percentile was computed last."""

    def add(self, duration_s: float) -> None:
        """Add the duration of an answered call."""
        self.count += 1
        bucket = bucket_of(duration_s)
        self._by_bucket[bucket] = self._by_bucket.get(bucket, 0) + 1

    @property
    def straggler_s(self) -> float | None:
        """Duration from which a call is a straggler; None while too few calls were answered."""
        if self.count < MIN_REPLIES:
            return None
        if self.count > self._computed_at * 1.02:  # a walk over the buckets takes 10 us
            self._computed_at = self.count
            self._straggler_s = max(LEAST_STRAGGLER_S, STRAGGLER_TIMES * quantile_s(self._by_bucket, 0.95))
        return self._straggler_s
