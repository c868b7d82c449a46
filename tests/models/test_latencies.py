"""The running 95th percentile of latencies, and the duration from which a call is a straggler."""

from __future__ import annotations

from random import Random

import pytest

from microagents.models.latencies import LEAST_STRAGGLER_S, Latencies


def test_the_percentile_follows_a_model_that_becomes_slow() -> None:
    latencies, random = Latencies(), Random(1)
    for duration_s in [random.uniform(0.5, 1.0) for _ in range(1000)]:
        latencies.add(duration_s)
    assert latencies.straggler_s == LEAST_STRAGGLER_S
    for _ in range(200):
        latencies.add(40.0)
        latencies.straggler_s  # noqa: B018 - read after every call, as the solver does
    assert latencies.straggler_s == pytest.approx(120.0, rel=0.051)
