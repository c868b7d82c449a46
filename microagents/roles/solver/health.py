"""The health of a model: whether it delivers, or its fallback has to be asked."""

from __future__ import annotations

import re
from asyncio import AbstractEventLoop, Future, TimerHandle
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from microagents.base.errors import ModelUnavailable

OUT_AFTER_S = 10.0
"""A model that has failed for this long without a reply in between is out, and so is one that asks to wait for so long."""
PROBE_EVERY_S = 60.0
"""Interval of the calls that try a model which is out."""
_UNAUTHORIZED, _UNPAID, _FORBIDDEN = 401, 402, 403
_OUT_OF_CREDIT = re.compile(r"insufficient_quota|credit balance|billing", re.IGNORECASE)


def is_out_of_credit(error: ModelUnavailable) -> bool:
    """Whether the account has nothing left to pay with: no wait helps, until a person does something."""
    return error.status == _UNPAID or _OUT_OF_CREDIT.search(str(error.args[1])) is not None


def refuses_account(error: ModelUnavailable) -> bool:
    """Whether a provider refuses the account: its key is wrong or revoked, or its credit is used up."""
    if error.is_of_content:
        return False
    return error.status in (_UNAUTHORIZED, _FORBIDDEN) or is_out_of_credit(error)


class Health:
    """Whether a model delivers, by the calls of one solver.

    Args:
        loop: the running event loop.
        on_out: called with the last failure when the model goes out; None if no other one can be asked.
    """

    def __init__(self, loop: AbstractEventLoop, on_out: Callable[[ModelUnavailable], None] | None) -> None:
        self._loop = loop
        self._on_out = on_out
        self.failing_since_s: float | None = None
        """Time of the first failure since the last reply; None while it delivers."""
        self.error: ModelUnavailable | None = None
        """The last failure."""
        self._try_at_s: float | None = None
        """Time of the next call that tries the model while it is out."""
        self.in_flight = 0
        """Number of calls to the model that are sent and have not ended."""
        self._waiting: dict[Future[None], None] = {}
        """Draws whose next call is not sent yet."""
        self._timer: TimerHandle | None = None

    @property
    def is_out(self) -> bool:
        """Whether its fallback has to be asked."""
        return self._try_at_s is not None

    def fails_since(self, time_s: float) -> bool:
        """Whether no reply has come since a failure at a time or earlier."""
        return self.failing_since_s is not None and self.failing_since_s <= time_s

    @contextmanager
    def waiting(self) -> Iterator[Future[None]]:
        """A future for a draw whose next call is not sent yet, done once the model is out."""
        out = self._loop.create_future()
        self._waiting[out] = None
        try:
            yield out
        finally:
            del self._waiting[out]

    def close(self) -> None:
        """Forget the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def delivered(self) -> None:
        """Note a reply."""
        if self.failing_since_s is not None:  # a model is out, and its timer runs, only since a failure
            self.failing_since_s = self._try_at_s = None
            self.close()

    def failed(self, error: ModelUnavailable, for_s: float = 0.0) -> None:
        """Note a failure, ``for_s`` seconds after the first one of other solvers."""
        now_s, was_out = self._loop.time(), self.is_out
        if not (error.retryable or refuses_account(error)):
            return
        self.error = error
        if self.failing_since_s is None:
            self.failing_since_s = now_s - for_s
        wait_s = error.retry_after_s or 0.0
        if was_out or refuses_account(error) or max(wait_s, now_s - self.failing_since_s) >= OUT_AFTER_S:
            self._try_at_s = now_s + max(wait_s, PROBE_EVERY_S)
            self.close()
            if not was_out:
                self._end(error)
            return
        self.close()
        # The next failure may be far: waits double, and during an outage a throttle lets only one call go at a time.
        self._timer = self._loop.call_at(self.failing_since_s + OUT_AFTER_S, self._look, error)

    def may_be_asked(self) -> bool:
        """Whether a call may go to the model: always while it delivers, and now and then while it is out."""
        if self._try_at_s is None:
            return True
        if self._loop.time() < self._try_at_s:
            return False
        self._try_at_s = self._loop.time() + PROBE_EVERY_S
        return True

    def _look(self, error: ModelUnavailable) -> None:
        """See the model as out, unless a call in flight may still show otherwise, or no draw needs it."""
        self._timer = None
        if self._waiting and not self.in_flight and self._on_out is not None:
            self._try_at_s = self._loop.time() + PROBE_EVERY_S
            self._end(error)

    def _end(self, error: ModelUnavailable) -> None:
        if self._on_out is None:
            return
        self._on_out(error)
        for out in self._waiting:
            if not out.done():
                out.set_result(None)
