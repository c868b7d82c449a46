"""Outages: the failed attempts at one sample, the waits between them, and the end of patience."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import blake2b

from microagents.base.errors import ModelUnavailable, Stopped
from microagents.base.logs import log
from microagents.elections.election import SampleId
from microagents.journal.messages import RecordOutage
from microagents.roles.limits.unread import Unread
from microagents.roles.solver.health import Health, is_out_of_credit

BACKOFF_S = (0.5, 60.0)
"""First and longest wait before a call is repeated, unless the provider asks for a longer one."""
TRIAL_S = 1.0
"""Longest wait of a call that tries a model which is out, until it is sent, and of the last one of an outage."""
WARN_EVERY_S = 60.0
"""Shortest interval of warnings about outages."""


class OutageReports:
    """Reports when the models of one solver stop and resume to deliver. Busy providers have many short outages: the log gets one a minute.

    Args:
        max_outage_s: the longest outage.
        tell: sends a report.
    """

    def __init__(self, max_outage_s: float, tell: Callable[[RecordOutage], None]) -> None:
        self._max_outage_s = max_outage_s
        self._tell = tell
        self._is_out = False
        self._warned_s: float | None = None
        """Time of the last warning."""

    def begin(self, error: str) -> None:
        """Report an outage, unless it has begun."""
        if self._is_out:
            return
        self._is_out = True
        self._tell(RecordOutage(error=error))
        now_s = asyncio.get_running_loop().time()
        if self._warned_s is None or now_s >= self._warned_s + WARN_EVERY_S:
            self._warned_s = now_s
            log().warning(
                "calls are tried again until the provider delivers", error=error, max_outage_s=self._max_outage_s
            )

    def end(self) -> None:
        """Report that the models deliver again, if there was an outage."""
        if self._is_out:
            self._is_out = False
            self._tell(RecordOutage(error=None))


class Outage:
    """Failed attempts at one sample, and the waits between them."""

    def __init__(self, sample: SampleId, max_outage_s: float) -> None:
        self._sample = sample
        self._made_s = asyncio.get_running_loop().time()
        self._max_outage_s = max_outage_s
        self._tries = 0
        self._unread = Unread()
        self._started_s: float | None = None
        """Time of the first failed attempt, or since which the sample waits while others fail."""
        self._error: ModelUnavailable | None = None
        """The last failure."""

    def left_s(self, health: Health) -> float:
        """Longest wait until the next attempt is sent, or the next look at the model, of which only a few calls are sent in an outage."""
        if self._started_s is None and health.failing_since_s is not None:
            self._started_s, self._error = max(self._made_s, health.failing_since_s), health.error
        if self._started_s is None or not health.fails_since(self._started_s):
            return self._max_outage_s
        return max(TRIAL_S, self._started_s + self._max_outage_s - asyncio.get_running_loop().time())

    def check(self, health: Health) -> None:
        """Check, before an attempt is sent, that the outage lasts no longer than it may.

        Raises:
            Stopped: it does.
        """
        if self._started_s is not None and health.fails_since(self._started_s):
            self._end_if_over(self._started_s)

    async def wait(self, error: ModelUnavailable, health: Health) -> None:
        """Wait before the next attempt, or until the model is out.

        Raises:
            ModelUnavailable: the error, if another attempt cannot help, or a reply that cannot be read after so many attempts.
            Stopped: the outage lasted longer than ``--max-outage``, or the account's credit is used up.
        """
        if is_out_of_credit(error):
            raise Stopped(
                f"{error}; waiting does not help; all decisions so far are kept; resume once the account has credit"
            )
        if not error.retryable:
            raise error
        if self._unread.said is not None:
            # Replies to other samples can be read, else the limiter would have ended the run.
            raise ModelUnavailable("refused", *error.args[1:])
        if error.is_unread:
            self._unread.add(str(error))
        if self._started_s is None:
            self._started_s = asyncio.get_running_loop().time()
        self._tries += 1
        self._error = error
        wait_s = min(self._end_if_over(self._started_s), max(error.retry_after_s or 0.0, self._backoff_s()))
        log().debug(
            "a call is tried again", path=self._sample.election.path, tries=self._tries, wait_s=wait_s, error=str(error)
        )
        with health.waiting() as out:
            await asyncio.wait([out], timeout=wait_s)

    def _end_if_over(self, started_s: float) -> float:
        """Seconds that the outage may still last."""
        lasted_s = asyncio.get_running_loop().time() - started_s
        if lasted_s >= self._max_outage_s:
            tries = f"{self._tries} {'try' if self._tries == 1 else 'tries'}"
            after = f"after {tries} in {lasted_s:.0f} s (--max-outage {self._max_outage_s:g})"
            raise Stopped(
                f"{self._error}; gave up {after}; all decisions so far are kept; resume once the provider delivers again"
            )
        return self._max_outage_s - lasted_s

    def _backoff_s(self) -> float:
        """A wait that doubles with each attempt. The sample's id spreads it: calls that failed together are not repeated together."""
        first_s, longest_s = BACKOFF_S
        spread = blake2b(
            self._sample.election.question_digest + f"{self._sample.seq}/{self._tries}".encode(), digest_size=2
        ).digest()
        return min(longest_s, first_s * (1 << min(self._tries - 1, 20))) * (0.5 + int.from_bytes(spread) / 65536)
