"""Common base of the providers behind HTTP: options, one bounded request, and errors as `ModelUnavailable`.

An SDK gives the headers of requests, and `sending` sends them: the SDKs follow redirects, decompress bodies of any size, and raise errors
that contain the key. This module bounds the time of a call, and translates failures.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
from abc import ABC, abstractmethod
from datetime import UTC, date, datetime
from difflib import get_close_matches
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw, Struct, structs

from microagents.elections.red_flags import known_finish
from microagents.errors import InvalidUsage, ModelUnavailable
from microagents.models import sample_keys
from microagents.models.capabilities import capabilities_of, has_ended, nearest_model
from microagents.models.http.open_files import connections_allowed
from microagents.models.http.sending import MAX_BODY_BYTES, Client, Response
from microagents.models.http.warming import Warming
from microagents.models.model import Model, Most, most_tokens, split
from microagents.models.prices import Tariff, flat_tariff, tariff_of
from microagents.models.rates import Rate, rates_of
from microagents.packages import require_packages
from microagents.replies.chat import Prompt, Sample, Usage

S = TypeVar("S", bound=Struct)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from microagents.actors import Context
    from microagents.models.model import Call, ModelSpec

MAX_MESSAGE_CHARS = 300
MAX_RETRY_AFTER_S = 86_400.0
MAX_COUNT_DIGITS = 9
MIN_KEY_CHARS = 8
"""A shorter key is a dummy, such as ``none``, and may stand in any text by chance."""
KEY = "[key]"
"""Stands for the key in texts of a server."""

_OPTIONS = ("base_url", "api_key_env", "timeout_s", "price_in", "price_out", "effort", "service_tier", "json_schema")
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_CHARS_PER_TOKEN = 4
"""Characters of a token of ordinary text."""
_MOST_CHARS_PER_TOKEN = 6
"""More than a token of ordinary text has, so that no prompt is refused that would fit."""
_TOO_MANY_CHARS = 8
"""More characters a token than the texts of several samples have: fewer tokens are those of one sample alone."""
_ECHO_CHARS = 24
"""An error message that contains so many characters of the prompt in a row counts as an echo of it."""

_KEY_LIKE = re.compile(r"\bsk-[\w*.-]{4,}")
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_UNSUPPORTED = re.compile(r"unsupported|not support|unrecogni[sz]ed|unknown|not permitted|deprecated", re.IGNORECASE)


class HttpModel(Model, ABC):
    """A model behind HTTP. Subclasses build the request and read the reply.

    Options: ``base_url``; ``api_key_env``, the environment variable with the key; ``timeout_s`` for a whole call;
    ``price_in`` and ``price_out`` in USD per million tokens, which go before all other prices. Cached input is then
    priced as any other input, so the cost is an upper bound. ``effort``, of reasoning; ``service_tier``;
    ``json_schema=true``, which constrains the output.

    Args:
        spec: the model and its options.
        prices: the user's prices by ``provider:model``. The cost of a model that neither they nor genai-prices have is unknown.

    Raises:
        InvalidUsage: an option is unknown or not readable, the key or the SDK is missing, or the model is shut down.
    """

    sdk: ClassVar[str]
    """Module of the provider's SDK."""
    url: ClassVar[str]
    """Address of the provider's API, the default ``base_url``."""
    url_env: ClassVar[str]
    """Environment variable in which the provider's SDK looks for another address."""
    key_env: ClassVar[str]
    """Environment variable with the key."""
    path: ClassVar[str]
    """Path of the request behind ``base_url``."""
    models_path: ClassVar[str] = "/models"
    """Path of the list of models behind ``base_url``."""
    more_options: ClassVar[tuple[str, ...]] = ()
    """Options of this provider alone."""
    effort_name: ClassVar[str]
    """Parameter of the effort."""
    substitutes: ClassVar[Mapping[str, str | None]]
    """Parameters that some models refuse, each with its substitute; None leaves the parameter out."""

    _run_id = ""
    """Name of the run, for idempotency keys."""

    def __init__(self, spec: ModelSpec, prices: Mapping[str, Any] = MappingProxyType({})) -> None:
        require_packages(f"{spec.provider}:{spec.name}", self.sdk, "aiohttp")
        options, known = spec.options, (*_OPTIONS, *self.more_options)
        for name in options:
            if name not in known:
                near = "".join(f", did you mean {match!r}" for match in get_close_matches(name, known, n=1))
                raise InvalidUsage(f"{spec.provider} has no option {name!r}{near}; its options are {', '.join(known)}")
        self.name = f"{spec.provider}:{spec.name}"
        self.model = spec.name
        self.capabilities = capabilities_of(spec.provider, spec.name)
        self.base_url = self._address(options)
        self.timeout_s = _number({"timeout_s": "120", **options}, "timeout_s")
        self._refuse_ended()
        self._tariff = self.tariff(spec, prices)
        self._key = self._find_key(options)
        self._connections = connections_allowed()
        self._rates: Mapping[str, Rate] = {}
        key = blake2b((self._key or "").encode(), digest_size=4).hexdigest()
        self._throttled_as = f"{self.sdk}:{spec.name} at {self.base_url}, key {key}"
        self._options = options
        self._effort = self._checked_effort()
        self._has_schema = flag(options, "json_schema")
        self._refused: dict[str, str | None] = {}
        self._cache_key: str | None = None
        self._warming = Warming()
        self._spent: Usage | None = None
        """Usage of the calls that warmed the cache, which the next sample reports."""
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = WeakKeyDictionary()

    @classmethod
    def open(cls, spec: ModelSpec, context: Context) -> Self:
        """The model of a spec.

        Raises:
            InvalidUsage: an option is wrong, or ``json_schema`` does not fit the task.
        """
        model = cls(spec, context.settings.get("prices", {}))
        model.join(context)
        return model

    def join(self, context: Context) -> None:
        """Take the name of a run into the requests, and check the options against its task."""
        self._run_id = self._cache_key = context.run_id
        for task in context.tasks[:1]:  # all have one class
            if self._has_schema and task.format != "json":
                raise InvalidUsage(
                    f"json_schema=true constrains replies to JSON, but {type(task).__name__} asks for lines; set format = 'json' in the "
                    "task, or leave json_schema out"
                )

    async def complete(self, call: Call) -> Sample:
        """Take one sample in one attempt. A request with a refused parameter is repeated without it.

        Raises:
            ModelUnavailable: no reply arrived, or it cannot be read.
        """
        return (await self._take(call))[0]

    async def _take(self, call: Call, client: Client | None = None) -> Sequence[Sample]:
        """Take the samples of a request in one attempt, through a client of its own or the one of all.

        Raises:
            ModelUnavailable: no reply arrived, or it cannot be read.
        """
        self._check_length(call)
        # Outside of the timeout: the first call imports the SDK, which takes a second.
        client = client or self._client()
        try:
            async with asyncio.timeout(self.timeout_s):
                answer = await self._ask_in_turn(client, call)
        except TimeoutError:
            answer = ModelUnavailable("timeout", f"no complete reply within {self.timeout_s:g} s")
        samples = answer if isinstance(answer, ModelUnavailable) else self._samples(answer, call)
        # Raised outside of every except clause: its context would be the SDK's error, which contains the request and the key.
        if isinstance(samples, ModelUnavailable):
            raise samples
        spent, self._spent = self._spent, None
        return samples if spent is None else [structs.replace(samples[0], usage=sum_of(samples[0].usage, spent)), *samples[1:]]

    async def listed(self) -> Response | ModelUnavailable:
        """The provider's list of models, which costs nothing; or why there is none."""
        sender = self._connect()
        try:
            return await sender.get(self.models_path)
        finally:
            await sender.close()

    async def close(self) -> None:
        """Close the connections of the running event loop. A later call opens new ones."""
        self._warming.clear()
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    @property
    def max_in_flight(self) -> int:
        """The number of connections. A call beyond them waits unsent, so that its timeout does not run."""
        return self._connections

    @property
    def rates(self) -> Mapping[str, Rate]:
        """Requests and tokens a minute that the provider allows, as its first reply told."""
        return self._rates

    @property
    def throttled_as(self) -> str:
        """Provider, model, address and key, of which a hash stands for the key: what providers limit by."""
        return self._throttled_as

    @property
    def priced(self) -> bool:
        """Whether its price is known."""
        return self._tariff is not None and self._tariff.is_known

    @abstractmethod
    def _connect(self) -> Client:
        """Create the client of an event loop."""

    @property
    def refused(self) -> Mapping[str, str | None]:
        """Parameters that are not sent since the model refuses them, each with the one sent instead."""
        return self._refused

    def refuse(self, refused: Mapping[str, str | None]) -> None:
        """Take over the refusals that an earlier sitting met."""
        self._refused.update({name: other for name, other in refused.items() if name in self.substitutes})

    @abstractmethod
    def _parameters(self, call: Call) -> dict[str, Any]:
        """The optional parameters of a request by their names in errors, such as ``reasoning.effort``."""

    @abstractmethod
    def _content(self, call: Call, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The rest of the request: the model and the prompt.

        Args:
            call: the call.
            parameters: those that will be sent.
        """

    @abstractmethod
    def _read(self, body: bytes, call: Call) -> Sample | ModelUnavailable:
        """Read the sample, or the failure, from the JSON of the reply to a call.

        Raises:
            msgspec.MsgspecError: the reply has another form.
        """

    def _read_all(self, body: bytes, call: Call) -> Sequence[Sample] | ModelUnavailable:
        """Read all samples of a reply to a call that asks for several."""
        sample = self._read(body, call)
        return sample if isinstance(sample, ModelUnavailable) else [sample]

    def _refuse_ended(self) -> None:
        today = _today()
        if self.base_url == self.url and has_ended(self.capabilities, today):
            ended = self.capabilities.shutdown
            raise InvalidUsage(f"{self.name} was shut down on {ended}; today's nearest is {self._provider}:{self.capabilities.successor}")

    def _checked_effort(self) -> str | None:
        """The effort to ask for; None to ask for none."""
        effort, allowed = self._options.get("effort"), self.capabilities.efforts
        if effort is None:
            return self.capabilities.default_effort
        if allowed is not None and effort not in allowed:
            takes = f"takes effort={_either(allowed)}" if allowed else "has no effort"
            raise InvalidUsage(f"{self.name} {takes}, not {effort!r}")
        return effort

    def _check_length(self, call: Call) -> None:
        window = self.capabilities.context_window
        if window is None:
            return
        read = (len(call.prompt.system) + len(call.prompt.user)) // _MOST_CHARS_PER_TOKEN
        if read + call.max_output_tokens > window:
            raise ModelUnavailable(
                "refused",
                f"a prompt of at least {read:,} tokens and --max-output-tokens {call.max_output_tokens} exceed the {window:,} tokens of "
                f"{self.name}; nothing was sent",
            )

    def _client(self) -> Client:
        # Connections belong to an event loop, and a program may run several in a row.
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = self._connect()
        return self._clients[loop]

    def _find_key(self, options: Mapping[str, str]) -> str | None:
        name = options.get("api_key_env", self.key_env)
        key = os.environ.get(name, "").strip()
        if not key and (self.base_url == self.url or "api_key_env" in options):
            raise InvalidUsage(f"no key for {self.base_url}: set the environment variable {name}")
        if not (key.isascii() and key.isprintable()):
            raise InvalidUsage(f"the environment variable {name} contains characters that no key has; set it to the key alone")
        return key or None

    def at_most(self, call: Call) -> Most:
        """The most that a call can use."""
        read = most_tokens(call.prompt)
        written = call.samples * call.max_output_tokens
        return Most(tokens=read + written, cost_usd=None if self._tariff is None else self._tariff.most_usd(read, written))

    @classmethod
    def tariff(cls, spec: ModelSpec, prices: Mapping[str, Any]) -> Tariff | None:
        """What the calls to the model of a spec cost; None if its price is unknown.

        Raises:
            InvalidUsage: a price in the spec will not do.
        """
        options = spec.options
        asked = options.get("service_tier")
        if ("price_in" in options) != ("price_out" in options):
            raise InvalidUsage("price_in and price_out go together: the cost of a call needs both")
        if "price_in" in options:
            return flat_tariff(_number(options, "price_in"), _number(options, "price_out"), asked=asked)
        return tariff_of((f"{spec.provider}:{spec.name}", f"{cls.sdk}:{spec.name}"), cls._address(options), prices, asked=asked)

    @classmethod
    def _address(cls, options: Mapping[str, str]) -> str:
        return _checked_url(options.get("base_url", os.environ.get(cls.url_env) or cls.url))

    def _is_cached(self, prompt: Prompt) -> bool:
        """Whether the constant part of a prompt is long enough for the provider to cache it."""
        floor = self.capabilities.cache_floor
        return floor is not None and len(prompt.system) + len(prompt.user_parts[0]) >= floor * _CHARS_PER_TOKEN

    async def _ask_in_turn(self, client: Client, call: Call) -> Response | ModelUnavailable:
        """Ask; of calls whose constant part is cached, the first one writes the cache before the others read it."""
        if self._is_cached(call.prompt):
            async with self._warming.turn(call.prompt.system + call.prompt.user_parts[0]) as is_first:
                if is_first and not await self._warm(client, call):
                    return await self._ask(client, call)
        return await self._ask(client, call)

    async def _warm(self, client: Client, call: Call) -> bool:  # noqa: ARG002 - for providers that can
        """Write the constant part into the cache by a call that generates nothing; returns whether the provider has such calls."""
        return False

    async def _ask(self, client: Client, call: Call) -> Response | ModelUnavailable:
        while True:
            parameters = self._accepted(call)
            key = sample_keys.key_of(self._run_id, call, parameters)
            body = {**self._content(call, parameters), **_nested(parameters)}
            answer = await client.post(self.path, body, {sample_keys.HEADER: key})
            if not self._learn_refusal(answer, parameters):
                return answer

    def _accepted(self, call: Call) -> dict[str, Any]:
        """The optional parameters of a request, without those that the model refuses."""
        parameters = self._parameters(call)
        if "temperature" in parameters and not self.capabilities.takes(self.capabilities.temperature, self._effort):
            self._refused.setdefault("temperature", None)
        for name, other in self._refused.items():
            value = parameters.pop(name, None)
            if other is not None and value is not None:
                parameters[other] = value
        return parameters

    def _learn_refusal(self, answer: Response | ModelUnavailable, sent: Mapping[str, Any]) -> bool:
        """Whether the answer refuses a parameter that has a substitute. All later calls use the substitute."""
        if isinstance(answer, ModelUnavailable) or answer.status_code != 400:  # noqa: PLR2004
            return False
        error = _decode_error(answer.content)
        for name, other in self.substitutes.items():
            # An effort that the user asked for is not left out in silence.
            is_wanted = name == self.effort_name and "effort" in self._options
            # A name that is itself a substitute is left alone: a server that refuses both would exchange them forever.
            if name in sent and not is_wanted and name not in self._refused.values() and error.refuses(name):
                if name not in self._refused:
                    import structlog  # noqa: PLC0415 - rarely needed

                    self._refused[name] = other
                    structlog.get_logger().warning("model refuses a parameter", model=self.name, parameter=name, sent_instead=other)
                return True
        return False

    def _samples(self, response: Response, call: Call) -> Sequence[Sample] | ModelUnavailable:
        if not self._rates:
            self._rates = rates_of(response.headers)
        if not response.is_success:
            return self._refusal(response, call.prompt)
        if len(response.content) > MAX_BODY_BYTES:
            reason = f"longer than {MAX_BODY_BYTES} bytes"
        else:
            try:
                samples = self._read_all(response.content, call)
                if isinstance(samples, ModelUnavailable):
                    message = self._public(str(samples.args[1]), call.prompt)
                    return ModelUnavailable(samples.kind, message, response.status_code, None, self._request_id(response))
                return [structs.replace(each, text=self._without_key(each.text), finish=known_finish(each.finish)) for each in samples]
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                reason = self._sanitize(str(error))
        return ModelUnavailable("garbled", reason, response.status_code, None, self._request_id(response))

    def _without_key(self, text: str) -> str:
        """A reply without the key: a server may repeat the request, headers included, and the journal keeps texts of replies."""
        return text if len(self._key or "") < MIN_KEY_CHARS else text.replace(str(self._key), KEY)

    def _refusal(self, response: Response, prompt: Prompt) -> ModelUnavailable:
        status = response.status_code
        if response.is_redirect:
            message = "the server redirects to another address, which is not followed; give the final address as base_url"
        else:
            error = _decode_error(response.content)
            message, name = self._public(error.message, prompt), str(error.code or error.type or "")
            if _NAME.fullmatch(name):
                message = self._sanitize(f"{name}: {message}" if message else name)
            message = self._explained(status, error) or message
        wait_s, request_id = retry_after_s(response.headers), self._request_id(response)
        return ModelUnavailable(_failure_kind(status), message or "no explanation", status, wait_s, request_id)

    def _public(self, message: str, prompt: Prompt) -> str:
        """A server's words without a key and without the prompt: prompts may be confidential, and errors go to logs."""
        clean = self._sanitize(message)
        return "the explanation repeats the prompt and is left out" if _echoes_prompt(clean, prompt) else clean

    def _explained(self, status: int, error: _Error) -> str | None:
        """Our own words for a refusal that the user can mend; None for any other."""
        effort = self._options.get("effort")
        if status == 400 and effort is not None and error.names(self.effort_name):  # noqa: PLR2004
            listed = [each for each in re.findall(r"['\"`]([a-z]+)['\"`]", error.message) if each in _EFFORTS and each != effort]
            if listed or error.refuses(self.effort_name):
                return f"{self.name} takes {f'effort={_either(listed)}' if listed else 'no effort'}, not {effort!r}"
        nearest = nearest_model(self._provider, self.model, _today()) if status == 404 and self.base_url == self.url else None  # noqa: PLR2004
        if nearest is not None:
            ended = f" (shut down on {self.capabilities.shutdown})" if self.capabilities.shutdown else ""
            return f"there is no model {self.model!r}{ended}; today's nearest is {self._provider}:{nearest}"
        return None

    @property
    def _provider(self) -> str:
        return self.name.partition(":")[0]

    def _sanitize(self, text: str) -> str:
        """Make text of a server safe for logs and screens: one printable line, cut, without anything that looks like a key."""
        text = _KEY_LIKE.sub(KEY, text.replace(self._key, KEY) if self._key else text)
        return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:MAX_MESSAGE_CHARS]

    def _request_id(self, response: Response) -> str | None:
        found = response.headers.get("x-request-id") or response.headers.get("request-id")
        return found if found and self._sanitize(found) == found and _NAME.fullmatch(found) else None

    def _guessed_usage(self, call: Call, text: str) -> Usage:
        """The usage of one of several samples that arrives before the provider tells it, by the lengths of the texts."""
        read, written = _tokens_in(len(call.prompt.system) + len(call.prompt.user)), _tokens_in(len(text))
        whole = Usage(input_tokens=read, output_tokens=written)
        cost_usd = None
        if self._tariff is not None and (total_usd := self._tariff.cost_usd(whole)) is not None:
            read_usd = self._tariff.cost_usd(structs.replace(whole, output_tokens=0)) or 0.0
            cost_usd = read_usd / call.samples + total_usd - read_usd
        return Usage(input_tokens=read // call.samples, output_tokens=written, cost_usd=cost_usd)

    def _split_usage(self, usage: Usage, lengths: Sequence[int], served: str | None) -> list[Usage]:
        """The usage of each of several samples: the prompt in equal parts, the output by the lengths of the texts, in characters.

        Some servers count the output of one sample alone. Where the count is too small for all texts, their lengths make it.
        """
        number, written = len(lengths), usage.output_tokens
        if usage.visible_tokens is not None and written is not None and usage.visible_tokens * _TOO_MANY_CHARS < sum(lengths):
            usage = structs.replace(usage, output_tokens=written - usage.visible_tokens + sum(map(_tokens_in, lengths)))
        total_usd = None if self._tariff is None else self._tariff.cost_usd(usage, served)
        unwritten = structs.replace(usage, output_tokens=0)
        read_usd = 0.0 if self._tariff is None else self._tariff.cost_usd(unwritten, served) or 0.0
        shares = [length / sum(lengths) if any(lengths) else 1 / number for length in lengths]
        read, cached, cache_written, outputs, reasoned = (
            [None] * number if total is None else split(total, parts)
            for total, parts in (
                (usage.input_tokens, [1.0] * number),
                (usage.cached_tokens, [1.0] * number),
                (usage.cache_write_tokens, [1.0] * number),
                (usage.output_tokens, shares),
                (usage.reasoning_tokens, shares),
            )
        )
        return [
            Usage(
                input_tokens=read[place],
                output_tokens=outputs[place],
                cost_usd=None if total_usd is None else read_usd / number + (total_usd - read_usd) * shares[place],
                reasoning_tokens=reasoned[place],
                cached_tokens=cached[place] or 0,
                cache_write_tokens=cache_written[place] or 0,
            )
            for place in range(number)
        ]

    def _usage(self, counts: Counts) -> Usage:
        """Usage of a reply; a count is None where the provider's is missing or implausible."""
        input_tokens, output_tokens, reasoning_tokens = _count(counts.read), _count(counts.written), _count(counts.reasoned)
        cached_tokens, cache_write_tokens = _count(counts.cached) or 0, _count(counts.cache_written) or 0
        if counts.excludes_cached and input_tokens is not None:
            input_tokens += cached_tokens + cache_write_tokens
        elif cached_tokens + cache_write_tokens > (input_tokens or 0):
            cached_tokens = cache_write_tokens = 0
        has_reasoning = counts.has_reasoning
        if reasoning_tokens is None or (has_reasoning and not reasoning_tokens) or (output_tokens or 0) < reasoning_tokens:
            reasoning_tokens = None if has_reasoning else 0
        usage = Usage(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            reasoning_tokens=reasoning_tokens,
            cached_tokens=cached_tokens,
            cache_write_tokens=cache_write_tokens,
        )
        return usage if self._tariff is None else structs.replace(usage, cost_usd=self._tariff.cost_usd(usage, name_or_none(counts.served)))


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The wait that a server asks for, in seconds; None if it asks for none, or for more than a day."""
    try:
        wait_s = float(headers["retry-after-ms"]) / 1000 if "retry-after-ms" in headers else float(headers["retry-after"])
    except (KeyError, ValueError):
        wait_s = _seconds_between(headers.get("retry-after", ""), headers.get("date", ""))
    return wait_s if 0 <= wait_s <= MAX_RETRY_AFTER_S else None


def _seconds_between(date: str, now: str) -> float:
    """Seconds between two dates by the server's clock, which may differ from ours; NaN if one is missing."""
    try:
        return max(0.0, (parsedate_to_datetime(date) - parsedate_to_datetime(now)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return math.nan


def _failure_kind(status: int) -> str:
    match status:
        case 429:
            return "busy"
        case 408 | 409:
            return "server"
    return "server" if status >= 500 else "refused"  # noqa: PLR2004


class _Error(Struct):
    message: str = ""
    type: str | None = None
    code: str | int | None = None
    param: str | None = None

    def names(self, parameter: str) -> bool:
        """Whether the refusal is about a parameter."""
        last = parameter.rpartition(".")[2]
        return re.search(rf"\b({re.escape(parameter)}|{last})\b", f"{self.param} {self.message}") is not None

    def refuses(self, parameter: str) -> bool:
        """Whether the model refuses a parameter itself, and not only its value."""
        return self.names(parameter) and _UNSUPPORTED.search(f"{self.code} {self.message}") is not None


class _ErrorBody(Struct):
    error: _Error | str


def _decode_error(body: bytes) -> _Error:
    try:
        error = msgspec.json.decode(body, type=_ErrorBody).error
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _Error()
    return _Error(message=error) if isinstance(error, str) else error


def _echoes_prompt(message: str, prompt: Prompt) -> bool:
    for text in (" ".join(prompt.system.split()), " ".join(prompt.user.split())):
        size = min(_ECHO_CHARS, len(text))
        if size >= 8 and any(message[at : at + size] in text for at in range(len(message) - size + 1)):  # noqa: PLR2004
            return True
    return False


class Counts(Struct, frozen=True, kw_only=True):
    """The counts of a reply, as its server wrote them: anything may stand there, and a malformed count must not cost a valid reply."""

    read: Raw
    """Input tokens."""
    written: Raw
    """Output tokens."""
    reasoned: Raw
    """Those of the output tokens that are reasoning."""
    cached: Raw = Raw()
    """Input tokens that were read from the cache."""
    cache_written: Raw = Raw()
    """Input tokens that were written into the cache."""
    served: Raw = Raw()
    """The service tier that the provider used."""
    has_reasoning: bool
    """Whether the reply says that it has reasoning."""
    excludes_cached: bool = False
    """Whether the input tokens exclude the cached ones and those written into the cache."""


def _count(written: Raw) -> int | None:
    digits = bytes(written)
    return int(digits) if digits.isdigit() and len(digits) <= MAX_COUNT_DIGITS else None


def name_or_none(written: Raw) -> str | None:
    """Decode an optional name; None where it is no text."""
    try:
        return msgspec.json.decode(written, type=str)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _tokens_in(length: int) -> int:
    """About as many tokens as a text of this length has."""
    return -(-length // _CHARS_PER_TOKEN)


def read_or_empty(raw: Raw, kind: type[S]) -> S:
    """Decode an optional part of a reply; a part that cannot be read gives an object with default fields."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, RecursionError):
        return kind()


def _nested(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters as JSON: ``reasoning.effort`` is the field ``effort`` of the object ``reasoning``."""
    body: dict[str, Any] = {}
    for name, value in parameters.items():
        *above, last = name.split(".")
        inner = body
        for each in above:
            inner = inner.setdefault(each, {})
        inner[last] = value
    return body


def sum_of(usage: Usage, spent: Usage) -> Usage:
    """The usage of a reply, and what was spent before it on input."""
    is_known = usage.cost_usd is not None and spent.cost_usd is not None
    return structs.replace(
        usage,
        input_tokens=None if usage.input_tokens is None else usage.input_tokens + (spent.input_tokens or 0),
        cached_tokens=usage.cached_tokens + spent.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens + spent.cache_write_tokens,
        cost_usd=(usage.cost_usd or 0.0) + (spent.cost_usd or 0.0) if is_known else None,
    )


def what_is_left(usages: Sequence[Usage], owed: Sequence[Usage]) -> Usage:
    """The sum of usages less what is owed of it already; no count is below 0."""

    def left(counts: Sequence[float | None], less: Sequence[float | None]) -> float | None:
        known = [count for count in counts if count is not None]
        return max(0.0, sum(known) - sum(count or 0.0 for count in less)) if len(known) == len(counts) else None

    counted = {
        name: None
        if (found := left([getattr(each, name) for each in usages], [getattr(each, name) for each in owed])) is None
        else round(found)
        for name in ("input_tokens", "output_tokens", "reasoning_tokens")
    }
    return Usage(
        **counted,
        cost_usd=left([each.cost_usd for each in usages], [each.cost_usd for each in owed]),
        cached_tokens=sum(each.cached_tokens for each in usages),
        cache_write_tokens=sum(each.cache_write_tokens for each in usages),
    )


def _today() -> date:
    return datetime.now(UTC).date()


def _either(names: Sequence[str]) -> str:
    """Names in words, such as ``low, medium or high``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def flag(options: Mapping[str, str], name: str) -> bool:
    """An option that is true or false; false by default.

    Raises:
        InvalidUsage: it is neither.
    """
    given = options.get(name, "false")
    if given not in ("true", "false"):
        raise InvalidUsage(f"{name}={given!r} is neither true nor false")
    return given == "true"


def _number(options: Mapping[str, str], name: str) -> float:
    try:
        value = float(options[name])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and (value > 0 if name == "timeout_s" else value >= 0)):
        raise InvalidUsage(f"{name}={options[name]!r} is not a positive number")
    return value


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port)
    except ValueError:
        good = False
        parts = None
    if parts and "@" in parts.netloc:
        raise InvalidUsage(
            "a base_url may not contain a user or a password; put the key into an environment variable and name it with api_key_env"
        )
    if not good:
        raise InvalidUsage(f"base_url={url!r} is not an address such as http://localhost:8000/v1")
    return url.rstrip("/")
