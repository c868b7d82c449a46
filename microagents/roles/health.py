"""The health of a model: whether it delivers, or its fallback has to be asked."""

from __future__ import annotations

import re
from asyncio import AbstractEventLoop

from microagents.errors import ModelUnavailable

OUT_AFTER_S = 10.0
"""A model that has failed for this long without a reply in between is out, and so is one that asks to wait for so long."""
PROBE_EVERY_S = 60.0
"""Interval of the calls that try a model which is out."""
_UNAUTHORIZED, _UNPAID, _FORBIDDEN = 401, 402, 403
_OUT_OF_CREDIT = re.compile(r"insufficient_quota|credit balance|billing", re.IGNORECASE)


def refuses_account(error: ModelUnavailable) -> bool:
    """Whether a provider refuses the account: its key is wrong or revoked, or its credit is used up."""
    return error.status in (_UNAUTHORIZED, _UNPAID, _FORBIDDEN) or _OUT_OF_CREDIT.search(str(error)) is not None


class Health:
    """Whether a model delivers, by the calls of one solver.

    Args:
        loop: the running event loop.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._failing_since_s: float | None = None
        self._try_at_s: float | None = None
        """Time of the next call that tries the model while it is out."""

    @property
    def is_out(self) -> bool:
        """Whether its fallback has to be asked."""
        return self._try_at_s is not None

    def delivered(self) -> None:
        """Note a reply."""
        self._failing_since_s = self._try_at_s = None

    def failed(self, error: ModelUnavailable) -> bool:
        """Note a failure; returns whether the model is out since now."""
        now_s, was_out = self._loop.time(), self.is_out
        if error.retryable or refuses_account(error):
            if self._failing_since_s is None:
                self._failing_since_s = now_s
            wait_s = error.retry_after_s or 0.0
            if was_out or refuses_account(error) or max(wait_s, now_s - self._failing_since_s) >= OUT_AFTER_S:
                self._try_at_s = now_s + max(wait_s, PROBE_EVERY_S)
        return self.is_out and not was_out

    def may_be_asked(self) -> bool:
        """Whether a call may go to the model: always while it delivers, and now and then while it is out."""
        if self._try_at_s is None:
            return True
        if self._loop.time() < self._try_at_s:
            return False
        self._try_at_s = self._loop.time() + PROBE_EVERY_S
        return True
