"""The throttle of one model: how many calls may be in flight, learned from its replies. Pure: the caller gives the time.

It works like the congestion control of TCP. A *round* is as many clean replies as the limit, and both ways of growth are spread over it,
so that a limit is exceeded by one call and not by many. Replies to calls that were sent before the last cut say nothing of the limit
since, and change nothing.
"""

from __future__ import annotations

from math import inf

START = 20
"""Calls in flight at the beginning."""
GROWTH = 0.05
"""Growth in a clean round once a call was refused; before, the limit doubles."""
SURGE = 0.1
"""Largest growth at once, as a share of the limit: replies are reported in batches, and as many calls as it grows are sent at once."""
CUT = 0.8
"""The share of the limit that a refusal leaves."""
DEEP_CUT = 0.5
"""The same when calls sent after two cuts are still refused: the provider's limit has fallen far."""
CUT_EVERY_S = 15.0
"""Shortest time between two cuts, unless the provider names one (``Retry-After``)."""
ROW = 30
"""A second refusal within about this number of replies is a sign of the limit; a single one may have any reason."""
PAUSE = 20
"""Replies after a failure or a refusal that do not let the limit grow."""
IN_USE = 0.8
"""Share of the limit that must be in use for it to grow."""
MOVED = 1.25
"""Once the limit is this many times what was refused last, the provider's limit has moved, and it doubles again."""
FAILURES = 5
"""Failures in a row, without any reply, that are an outage."""
PROBE_S = (1.0, 30.0)
"""First and longest time between two calls during an outage."""
PROBES = 4
"""Such calls at least in the longest outage."""


class Throttle:
    """Limit of calls in flight to one model.

    Args:
        start: its first value, and the most after an outage.
        max_outage_s: the longest outage.
    """

    def __init__(self, start: int = START, max_outage_s: float = inf) -> None:
        self._start = start
        self._longest_s = min(PROBE_S[1], max_outage_s / PROBES)
        self._limit = float(start)
        self._refused_at: float | None = None
        """The limit at the last refusal; None while it doubles."""
        self._refusals = 0.0
        """Number of late refusals; older ones count less."""
        self._replies = 0
        """Number of clean replies since the last cut."""
        self._cuts = 0
        """Number of cuts in a row: with hardly a clean reply between them."""
        self._pause = 0
        """Number of replies that do not let the limit grow."""
        self._next_cut_s = float("-inf")
        self._is_frozen = False
        """Whether it may not grow before the next cut is possible."""
        self._failures = 0
        self._probe_s = 0.0
        """Time of the next call during an outage."""
        self.epoch = 0
        """Number of cuts so far. A reply counts if its call was sent in the current epoch."""

    @property
    def is_out(self) -> bool:
        """Whether the provider is out."""
        return self._failures >= FAILURES

    @property
    def limit(self) -> int:
        """The limit while the provider is up."""
        return int(self._limit)

    def allowed(self, now_s: float) -> int:
        """Count the calls that may be in flight now."""
        if self.is_out:
            if now_s >= self._probe_s:
                return 1
            return 0
        return int(self._limit)

    @property
    def probe_s(self) -> float | None:
        """Time of the next call during an outage; None if there is none."""
        if not self.is_out:
            return None
        return self._probe_s

    def reply(self, number: int, in_use: int, now_s: float) -> None:
        """Note clean replies to calls of this epoch, and how many calls were in flight."""
        if self.is_out:  # not all that wait at once
            self._limit = min(self._limit, self._start)
            self._refused_at = None
        self._failures = 0
        self._replies += number
        self._refusals *= (1 - 1 / ROW) ** number
        counting = max(0, number - self._pause)
        self._pause -= number - counting
        if self._is_frozen and now_s < self._next_cut_s:
            return
        self._is_frozen = False
        if in_use < IN_USE * int(self._limit):
            return
        if self._refused_at is not None and self._limit > MOVED * self._refused_at:
            self._refused_at = None
        self._limit += min(counting * (1.0 if self._refused_at is None else GROWTH), max(4.0, SURGE * self._limit))

    def refuse(self, now_s: float, wait_s: float | None = None) -> None:
        """Note a refusal (429) of a call of this epoch.

        Args:
            now_s: the time.
            wait_s: the wait that the provider asks for.
        """
        self._failures = 0
        self._refusals += 1
        self._pause = PAUSE
        if self._refusals < 1.5:  # noqa: PLR2004 - the second one, if not long after the first
            return
        self._cuts = self._cuts + 1 if self._replies < self._limit / 10 else 0
        self._refused_at = self._limit
        if now_s >= self._next_cut_s:
            self._limit *= CUT
            self._next_cut_s = now_s + (CUT_EVERY_S if wait_s is None else wait_s)
        elif not self._cuts:  # it has grown back to what the provider takes
            self._limit -= 2
            self._is_frozen = True
        else:
            self._limit *= CUT if self._cuts == 1 else DEEP_CUT
        self._begin_epoch()

    def follow(self, now_s: float) -> None:
        """Cut as another run has, which shares the provider, unless this one has cut of late."""
        if now_s >= self._next_cut_s:
            self._refused_at = self._limit
            self._limit *= CUT
            self._next_cut_s = now_s + CUT_EVERY_S
            self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._limit = max(1.0, self._limit)
        self._refusals, self._replies, self._pause = 0.0, 0, 0
        self.epoch += 1

    def fail(self, now_s: float) -> None:
        """Note a failure of the provider or the network: it does not cut, but such a call does not make it grow."""
        self._failures += 1
        self._pause = PAUSE
        if self.is_out:
            self._probe_s = now_s + min(self._longest_s, PROBE_S[0] * 2 ** min(self._failures - FAILURES, 10))
