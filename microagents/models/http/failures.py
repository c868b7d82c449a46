"""Failures of requests: a server's refusals and unreadable replies as `ModelUnavailable`, with the mend where one is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from microagents.base.errors import ModelUnavailable
from microagents.models.http.events import is_streamed
from microagents.models.http.refusals import (
    BAD_REQUEST,
    MAX_MESSAGE_CHARS,
    NO_SUCH_PATH,
    Redaction,
    error_in,
    failure_kind,
    refuses_system,
    retry_after_s,
)
from microagents.models.http.replies import has_reply
from microagents.models.http.sending import Response, address_of
from microagents.models.http.spec_options import meant_url, other_model

if TYPE_CHECKING:
    from microagents.models.capabilities import Capabilities
    from microagents.replies.chat import Prompt

REDIRECTED = "the server redirects to another address, which is not followed; give the final address as base_url"
SHOWN_BYTES = 200
"""Bytes of a reply that cannot be read that its error shows."""


class Failures(Struct, frozen=True):
    """Makes the failures of requests to one model."""

    model: str
    """Provider and name of the model."""
    base_url: str
    path: str
    """Path of the request behind ``base_url``."""
    is_own_address: bool
    """Whether the address is the provider's own."""
    capabilities: Capabilities
    effort_name: str
    """Parameter of the effort."""
    effort: str | None
    """Effort that the user asks for."""
    redaction: Redaction

    @property
    def meant_url(self) -> str | None:
        """The ``base_url`` that was probably meant by one whose server does not know the path; None for none."""
        if self.is_own_address:
            return None
        return meant_url(self.base_url, self.path)

    def of(self, kind: str, message: str, response: Response, wait_s: float | None = None) -> ModelUnavailable:
        """Return the failure of a request, with the address that was asked and the provider's name for the request."""
        asked = self.redaction.sanitize(address_of(self.base_url, self.path).partition("?")[0])
        request = self.redaction.request_id(response)
        return ModelUnavailable(kind, message, response.status_code, wait_s, request, asked)

    def refused(self, response: Response, prompt: Prompt) -> ModelUnavailable:
        """Return the failure of a request that its server refuses."""
        status, error = response.status_code, error_in(response.found)
        message, hint, kind = None, "", failure_kind(status)
        if response.is_redirect:
            message = REDIRECTED
        elif status == BAD_REQUEST:
            message = error.refusal_of_effort(self.model, self.effort_name, self.effort)
        elif status in NO_SUCH_PATH and self.is_own_address:
            message = other_model(self.model, self.capabilities)
        elif status in NO_SUCH_PATH and self.meant_url is not None and "model" not in error.message:
            hint = f"; did you mean base_url={self.meant_url}"
        if prompt.system and refuses_system(error.message):
            kind, hint = "refused", "; to put the system part into the user's, give @system=user in the model's spec"
        shown = self.redaction.public(_beginning_of(response).strip(), prompt)
        message = message or self.redaction.explanation(error, prompt) or shown or "no explanation"
        told = message[: MAX_MESSAGE_CHARS - len(hint)] + hint
        return self.of(kind, told, response, retry_after_s(response.headers))

    def unread(self, error: Exception, response: Response, prompt: Prompt) -> ModelUnavailable:
        """Return the failure of a reply that cannot be read, in its own words if it has some."""
        words = ""
        if not (response.content[:1] == b"<" or is_streamed(response.content) or has_reply(response.found)):
            words = self.redaction.explanation(error_in(response.found), prompt)
        unread = self.redaction.public(f"{error}; it begins {_beginning_of(response)!r}", prompt)
        return self.of("garbled", words or unread, response)


def _beginning_of(response: Response) -> str:
    return response.content[:SHOWN_BYTES].decode("utf-8", "replace")
