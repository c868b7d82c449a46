"""Refusals: a server's words on a request that it does not answer, without the key and the prompt, and the substitutes to send."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Container, Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from html import unescape
from typing import Any

import msgspec
from msgspec import Struct

from microagents.base.foreign_text import printable_line
from microagents.base.logs import log
from microagents.models.http.histories import USER_BEHIND_RESULTS
from microagents.models.http.replies import UNREADABLE, finish_of, has_reply, name_in, object_in, reply_in, snake_of
from microagents.models.http.sending import MAX_ERROR_BYTES, Response
from microagents.models.http.spec_options import either
from microagents.replies.chat import Prompt, Sample

MAX_MESSAGE_CHARS = 300
MAX_RETRY_AFTER_S = 86_400.0
MIN_KEY_CHARS = 8
"""A shorter key is a dummy, such as ``none``, and may stand in any text by chance."""
KEY = "[key]"
"""Stands for the key in texts of a server."""
BAD_REQUEST, MOST_STATUS = 400, 600
NO_SUCH_PATH = (404, 405)
REFUSED_PARAMETERS = (400, 422)
"""Statuses by which servers refuse a parameter."""
_OF_SYSTEM = re.compile(r"system[_ ](?:role|message|prompt|part)|roles? must alternate|only user", re.IGNORECASE)
TOOLS, UNREASONED = "tools", "unreasoned"
"""What a model may refuse in a conversation: its tools and turns, and calls without the reasoning before them."""
SENT_AS_TEXT = {TOOLS: None, UNREASONED: None, USER_BEHIND_RESULTS: None}
_USER_BEHIND = re.compile(r"user\W{0,4}after (?:the )?(?:role )?\W{0,4}tool", re.IGNORECASE)
_OF_TURNS = re.compile(
    r"\btools?\b|tool[ _-]?(?:use|call|choice)|function[ _-]?call|roles?\b|earlier turns", re.IGNORECASE
)
_NOT_TAKEN = re.compile(
    "unsupported|not support|not served|unrecogni[sz]ed|not permitted|not enabled|requires? -|no endpoints|must alternate|"
    "only user",
    re.IGNORECASE,
)
_WANTS_REASONING = re.compile(
    r"(?=.*(?:reasoning|thinking|thought|signature))(?=.*(?:must|required|missing|expected|without|passed back|invalid))",
    re.IGNORECASE | re.DOTALL,
)
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_ECHO_CHARS = 24
"""An error message with this many characters of the prompt in a row counts as an echo of it."""

_KEY_LIKE = re.compile(r"\bsk-[\w*.-]{4,}")
NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_CONTENT_FIELDS = ("messages", "tools", "input", "prompt", "instructions", "system", "content")
"""Fields of a request that hold what it says."""
_UNSUPPORTED = re.compile(r"unsupported|not support|unrecogni[sz]ed|unknown|not permitted|deprecated", re.IGNORECASE)


class Redaction:
    """Keeps the key and the prompt out of the texts of a server, which go to logs and into the journal.

    Args:
        key: the key; None for none.
    """

    def __init__(self, key: str | None) -> None:
        self._key = key

    def sanitize(self, text: str) -> str:
        """Make text of a server safe for logs and screens: one printable line, cut, without anything that looks like a key."""
        return printable_line(_KEY_LIKE.sub(KEY, self.without_key(text)))[:MAX_MESSAGE_CHARS]

    def request_id(self, response: Response) -> str | None:
        """Return the name that the provider gave the request; None for none."""
        found = response.headers.get("x-request-id") or response.headers.get("request-id")
        if found and self.sanitize(found) == found and NAME.fullmatch(found):
            return found
        return None

    def public(self, message: str, prompt: Prompt) -> str:
        """A server's words without a key and without the prompt: prompts may be confidential, and errors go to logs."""
        clean = self.sanitize(message)
        if _echoes_prompt(clean, prompt):
            return "the explanation repeats the prompt and is left out"
        return clean

    def explanation(self, error: ServerError, prompt: Prompt) -> str:
        """A server's words on a refusal, behind its name for it."""
        message, name = self.public(error.message, prompt), str(error.code or error.type or "")
        name = "" if name.isdecimal() else name
        if error.param and re.split(r"\W", error.param)[0] not in _CONTENT_FIELDS and "parameter" not in message:
            message = f"{message} (parameter {self.sanitize(error.param)})"
        if NAME.fullmatch(name):
            return self.sanitize(f"{name}: {message}" if message else name)
        return message

    def without_key(self, text: str) -> str:
        """A reply without the key: a server may repeat the request, headers included, and the journal keeps texts of replies."""
        if len(self._key or "") < MIN_KEY_CHARS:
            return text
        return text.replace(str(self._key), KEY)

    def bytes_without_key(self, body: bytes) -> bytes:
        """The same for a body."""
        if len(self._key or "") < MIN_KEY_CHARS:
            return body
        return body.replace(str(self._key).encode(), KEY.encode())

    def of_sample(self, sample: Sample) -> Sample:
        """A sample without the key in its text and in its calls."""
        written = msgspec.json.encode(sample)
        clean = self.bytes_without_key(written)
        if clean == written:
            return sample
        return msgspec.json.decode(clean, type=Sample)


class Substitutes:
    """Optional parameters that a model refuses, and their substitutes.

    Args:
        model: name of the model.
        known: parameters that some models refuse, each with its substitute; None leaves the parameter out.
        wanted: parameters that the user asked for, which are not left out in silence.
    """

    def __init__(self, model: str, known: Mapping[str, str | None], wanted: Container[str]) -> None:
        self._model = model
        self._known = known
        self._wanted = wanted
        self._needless: Collection[str] = ()
        self.refused: dict[str, str | None] = {}
        """Parameters that are not sent since the model refuses them, each with the one sent instead."""

    def leave_out(self, names: Collection[str]) -> None:
        """Know further parameters, which no call needs: they are left out once a refusal names them, be it only for their value."""
        self._known, self._needless = {**self._known, **dict.fromkeys(names)}, names

    def take_over(self, refused: Mapping[str, str | None]) -> None:
        """Take over the refusals that an earlier sitting met."""
        self.refused.update({name: other for name, other in refused.items() if name in self._known})

    def put_into(self, parameters: dict[str, Any]) -> None:
        """Replace the parameters of a request that the model refuses."""
        for name, other in self.refused.items():
            value = parameters.pop(name, None)
            if other is not None and value is not None:
                parameters[other] = value

    def learn_of_turns(self, message: str, known: Container[str], *, has_calls: bool) -> bool:
        """Whether a server's words refuse a conversation that can be written in another way. All later calls are written so.

        Args:
            message: the words.
            known: names of the refusals that were known when the conversation was sent.
            has_calls: whether the conversation has calls.
        """
        if _USER_BEHIND.search(message):
            name = USER_BEHIND_RESULTS
        elif has_calls and _WANTS_REASONING.search(message):
            name = UNREASONED
        elif _OF_TURNS.search(message) and _NOT_TAKEN.search(message):
            name = TOOLS
        else:
            return False
        if name in known:  # it did not help
            name = TOOLS
        if name in known:
            return False
        self._refuse(name, None, "text")
        return True

    def _refuse(self, name: str, other: str | None, sent_instead: str | None) -> None:
        if name not in self.refused:
            self.refused[name] = other
            log().warning("model refuses a parameter", model=self._model, parameter=name, sent_instead=sent_instead)

    def learn(self, error: ServerError, sent: Mapping[str, Any]) -> bool:
        """Whether an error refuses a parameter that has a substitute. All later calls use the substitute."""
        for name, other in self._known.items():
            # A name that is itself a substitute stays: a server that refuses both would exchange them forever.
            may_go = name in sent and name not in self._wanted and name not in self.refused.values()
            if may_go and (error.refuses(name) or (name in self._needless and error.names(name))):
                self._refuse(name, other, other)
                return True
        return False


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the wait that a server asks for, in seconds; None if it asks for none, or for more than a day."""
    try:
        if "retry-after-ms" in headers:
            wait_s = float(headers["retry-after-ms"]) / 1000
        else:
            wait_s = float(headers["retry-after"])
    except (KeyError, ValueError):
        wait_s = _seconds_between(headers.get("retry-after", ""), headers.get("date", ""))
    if 0 <= wait_s <= MAX_RETRY_AFTER_S:
        return wait_s
    return None


def _seconds_between(date: str, now: str) -> float:
    """Seconds between two dates by the server's clock, which may differ from ours; NaN if one is missing."""
    try:
        return max(0.0, (parsedate_to_datetime(date) - parsedate_to_datetime(now)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return math.nan


def refuses_system(message: str) -> bool:
    """Whether a server says that the template of its model takes no system part."""
    return _OF_SYSTEM.search(message) is not None


def failure_kind(status: int) -> str:
    """Return the kind of a failure, by its status."""
    match status:
        case 429:
            return "busy"
        case 408 | 409:
            return "server"
    return "server" if status >= 500 else "refused"  # noqa: PLR2004


class ServerError(Struct):
    """Explanation of a server that refuses a request."""

    message: str = ""
    type: str | None = None
    code: str | int | None = None
    param: str | None = None
    status: str | int | None = None
    """Its HTTP status, or its gRPC name, if the server tells it in the body."""

    def names(self, parameter: str) -> bool:
        """Whether the refusal is about a parameter."""
        last = parameter.rpartition(".")[2]
        return re.search(rf"\b({re.escape(parameter)}|{last})\b", f"{self.param} {self.message}") is not None

    def refuses(self, parameter: str) -> bool:
        """Whether the model refuses a parameter itself, and not only its value."""
        return self.names(parameter) and _UNSUPPORTED.search(f"{self.code} {self.message}") is not None

    def refusal_of_effort(self, model: str, parameter: str, effort: str | None) -> str | None:
        """Our own words for the refusal of an effort, which the user can mend; None for any other."""
        if effort is None or not self.names(parameter):
            return None
        listed = [
            each for each in re.findall(r"['\"`]([a-z]+)['\"`]", self.message) if each in _EFFORTS and each != effort
        ]
        if not listed and not self.refuses(parameter):
            return None
        return f"{model} takes {f'effort={either(listed)}' if listed else 'no effort'}, not {effort!r}"


_WORDS = (
    *("message", "msg", "raw", "faultstring", "detail", "details", "description", "error_description", "reason"),
    *("error", "errors", "title"),
)
"""Fields in which servers explain an error, the most telling first."""
_MOST_LISTED = 3
"""Members of a list that are told."""
_STATUSES = (
    (402, r"quota|billing|payment|credit|balance"),
    (429, r"rate_?limit|rate_exceeded|too_?many|throttl|resource_exhausted"),
    (401, r"authenticat|unauthori[sz]ed|api_?key"),
    (403, r"permission|forbidden|access_?denied"),
    (404, r"not_?found|no_such"),
    (413, r"too_?large"),
    (503, r"overload|unavailable"),
    (504, r"time_?out|deadline"),
    (500, r"server_?error|api_error|internal"),
    (400, r"invalid|bad_?request|content_|context_|validation|unsupported"),
)
"""Statuses, by the names that servers give to errors; the first one counts."""


def error_in(found: Any) -> ServerError:
    """Read the explanation in JSON, whatever its form; one without words is empty."""
    named: dict[str, str | int] = {}
    for name, value in _leaves(found):
        if value != "error":
            named.setdefault(name, value)
    code, kind, param = named.get("code"), named.get("type"), named.get("param")
    status = next((named[each] for each in ("status", "statuscode", "status_code") if each in named), None)
    return ServerError(
        message=words_in(found), type=str(kind or "") or None, code=code, status=status, param=str(param or "") or None
    )


def errors_of_choices(reply: dict[str, Any]) -> list[Any]:
    """Return the errors that stand in choices, or beside choices that all ended by an error."""
    choices = reply.get("choices")
    if not isinstance(choices, list) or not choices:
        return []
    reasons = [object_in(each).get("finish_reason") for each in choices]
    ends = {finish_of(name_in(reason)) for reason in reasons}
    errors = [object_in(each).get("error") for each in choices]
    if ends == {"error"}:
        errors.append(reply.get("error"))
    return [each for each in errors if each]


def status_told(found: Any) -> int | None:
    """Return the status of an error that a server gives in the place of a reply; None for a reply, and for an error without one."""
    found = object_in(reply_in(found))
    errors = errors_of_choices(found)
    if errors:
        found = {"error": errors[0]}
    elif has_reply(found) and found.get("status") != "failed":
        return None
    error = error_in(found)
    for each in (error.code, error.status, error.type):
        name = str(each)
        if name.isdecimal() and BAD_REQUEST <= int(name) < MOST_STATUS:
            return int(name)
        for status, pattern in _STATUSES:
            if each is not None and re.search(pattern, snake_of(name)):
                return status
    return None


def words_in(found: Any) -> str:
    """Return the words of an error in a text, an object or a list, the most telling first; a list of pydantic's names each place."""
    if isinstance(found, str):
        return found
    leaves = list(_leaves(found))
    told = [str(value) for each in _WORDS for name, value in leaves if name == each and isinstance(value, str)]
    return "; ".join(dict.fromkeys(told))


def _leaves(found: Any, name: str = "error") -> Iterator[tuple[str, str | int]]:
    """Yield the texts and whole numbers in an error by their names in lower case; JSON in a text is read, too."""
    if isinstance(found, str) and found[:1] in ("{", "["):
        with suppress(*UNREADABLE):
            found = json.loads(found)
    if isinstance(found, list):
        for each in found[:_MOST_LISTED]:
            yield from _leaves(each, name)
    elif isinstance(found, dict):
        place = found.get("loc")
        if isinstance(place, list):
            found = {"msg": f"{'.'.join(map(str, place))}: {found.get('msg')}"}
        for field, value in found.items():
            yield from _leaves(value, field.lower())
    elif isinstance(found, str | int) and found:
        yield name, found


def plain(body: bytes) -> str:
    """Return the text of a body that is no JSON, without the tags, styles and scripts of a page."""
    text = body[:MAX_ERROR_BYTES].decode("utf-8", "replace")
    if text.lstrip()[:1] in ("{", "[", '"'):
        return ""
    shown = re.sub(r"(?is)<(style|script)\b.*?</\1>|<[^>]*>", " ", text)
    return " ".join(unescape(shown).split())


def _echoes_prompt(message: str, prompt: Prompt) -> bool:
    for text in (" ".join(prompt.flat.system.split()), " ".join(prompt.flat.user.split())):
        size = min(_ECHO_CHARS, len(text))
        if size >= 8 and any(message[at : at + size] in text for at in range(len(message) - size + 1)):  # noqa: PLR2004
            return True
    return False
