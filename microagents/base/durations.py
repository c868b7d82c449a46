"""Histograms of the durations of calls: small enough to be stored with every commit, and exact to 3 %."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log

SHORTEST_S = 0.001
"""Shorter durations are written alike."""
GROWTH = 1.05
"""Ratio of the bounds of neighbouring buckets."""


def bucket_of(duration_s: float) -> int:
    """Return the number of the bucket of a duration, from 0."""
    if duration_s > SHORTEST_S:
        return ceil(log(duration_s / SHORTEST_S, GROWTH))
    return 0


def quantile_s(counts: Mapping[int, int], share: float) -> float:
    """Return the duration that this share of calls does not exceed, in seconds; 0 without calls. Calls are counted by bucket."""
    left = ceil(share * sum(counts.values()))
    for bucket in sorted(counts):
        left -= counts[bucket]
        if left <= 0:
            return float(SHORTEST_S * GROWTH ** (bucket - 0.5))
    return 0.0
