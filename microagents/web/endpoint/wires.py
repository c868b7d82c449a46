"""The wires that are forwarded: their paths, the few fields of a request that are named, and the forms of errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from microagents.base.errors import MicroagentsError
from microagents.models.token_masses import ALTERNATIVES


class Withheld(MicroagentsError):
    """A reply is there and is not answered; args: HTTP status, reason."""

    @property
    def status(self) -> int:
        """The HTTP status of the answer in its place."""
        return int(self.args[0])

    def __str__(self) -> str:
        return str(self.args[1])


class Wire(Struct, frozen=True, kw_only=True):
    """One wire."""

    name: str
    path: str
    """Path of its requests here."""
    upstream: str
    """Path behind the base URL of a model."""
    sdk: str
    """SDK whose models speak it."""
    caps: tuple[str, ...]
    """Names of the cap on output tokens, the first for requests that have none."""
    forms: tuple[str, ...]
    """Fields that can give the text a JSON schema."""
    logprobs: Mapping[str, int] = {}
    """Fields that ask for the log-probabilities of tokens; none if the wire has none."""

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Write an error in its form."""
        kind = _ERRORS.get(status, "api_error")
        if self.sdk == "anthropic":
            return {"type": "error", "error": {"type": kind, "message": message}}
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}


CHAT = Wire(
    name="chat",
    path="/v1/chat/completions",
    upstream="/chat/completions",
    sdk="openai",
    caps=("max_completion_tokens", "max_tokens"),
    forms=("response_format", "structured_outputs"),
    logprobs={"logprobs": True, "top_logprobs": ALTERNATIVES},
)
RESPONSES = Wire(
    name="responses",
    path="/v1/responses",
    upstream="/responses",
    sdk="openai",
    caps=("max_output_tokens",),
    forms=("text",),
    logprobs={"top_logprobs": ALTERNATIVES},
)
MESSAGES = Wire(
    name="messages",
    path="/v1/messages",
    upstream="/v1/messages",
    sdk="anthropic",
    caps=("max_tokens",),
    forms=("output_config", "output_format"),
)
WIRES = (CHAT, RESPONSES, MESSAGES)
_ERRORS: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
