"""Common base of the providers behind HTTP: options, one bounded request, and errors as `ModelUnavailable`.

An SDK gives the headers of requests, and `sending` sends them: the SDKs follow redirects, decompress bodies of any size, and raise errors
that contain the key. This module bounds the time of a call, and translates failures.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self
from weakref import WeakKeyDictionary

from msgspec import structs

from microagents.base.errors import InvalidUsage, ModelUnavailable
from microagents.base.text_digests import digest_of
from microagents.models import sample_keys
from microagents.models.capabilities import capabilities_of
from microagents.models.http.batch_client import BatchClient, BatchTerms
from microagents.models.http.batch_wires import BatchWire
from microagents.models.http.cached_prefixes import AUTO, CachedPrefixes
from microagents.models.http.events import found_in
from microagents.models.http.failures import Failures
from microagents.models.http.histories import REASONING_FIELDS, History, opened
from microagents.models.http.media_parts import PartForm, most_file_tokens, refusal_of
from microagents.models.http.native_calls import NativeCall
from microagents.models.http.open_files import connections_allowed
from microagents.models.http.refusals import (
    NO_SUCH_PATH,
    REFUSED_PARAMETERS,
    SENT_AS_TEXT,
    TOOLS,
    UNREASONED,
    Redaction,
    Substitutes,
    error_in,
    failure_kind,
    plain,
    status_told,
)
from microagents.models.http.replies import UNREADABLE, Said, object_in
from microagents.models.http.samples import SampleMaker
from microagents.models.http.sending import (
    MAX_BODY_BYTES,
    Answered,
    Body,
    Client,
    OnLine,
    Parameters,
    Response,
    Sender,
    in_time,
)
from microagents.models.http.spec_options import (
    check_length,
    check_names,
    checked_url,
    effort_of,
    either,
    flag,
    hours_in,
    key_in,
    number_in,
    refuse_ended,
)
from microagents.models.http.staggering import Staggering
from microagents.models.http.usage import Meter
from microagents.models.model import Model, Most, most_tokens
from microagents.models.prices import BATCH, NO_PRICES, Tariff, UserPrices, flat_tariff, tariff_of
from microagents.models.rates import Rate, rates_of
from microagents.replies.chat import Prompt, Sample
from microagents.replies.tool_calls import Calls

TEXT = "text"
"""How calls may be written, if not as native ones."""
REFUSED_CONVERSATIONS = (400, 404, 422, 500, 501)
"""Statuses by which servers refuse turns and tools."""
USER = "user"
"""Where the system part may go, if the model takes none."""

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from microagents.actors.role import Context
    from microagents.elections.sample_batches import BatchKind
    from microagents.models.model import Call, ModelSpec
    from microagents.replies.media import Media


class HttpModel(Model, ABC):
    """A model behind HTTP. Subclasses build the request and read the reply.

    Options: ``base_url``; ``api_key_env``, the environment variable with the key; ``timeout_s`` for a whole call;
    ``price_in`` and ``price_out`` in USD per million tokens, which go before all other prices. Cached input is then
    priced as any other input, so the cost is an upper bound. ``effort``, of reasoning; ``service_tier``;
    ``json_schema=true``, which constrains the output; ``system=user``, which puts the system part of prompts into the user's;
    ``calls=text``, which writes turns and tools as one text.

    Args:
        spec: the model and its options.
        prices: the user's prices by ``provider:model``. The cost of a model that neither they nor genai-prices have is unknown.

    Raises:
        InvalidUsage: an option is unknown or not readable, the key is missing, or the model is shut down.
    """

    sdk: ClassVar[str]
    """Name of the provider's SDK. All its APIs share prices and throttles."""
    url: ClassVar[str]
    """Address of the provider's API, the default ``base_url``."""
    url_env: ClassVar[str]
    """Environment variable in which the provider's SDK looks for another address."""
    key_env: ClassVar[str]
    """Environment variable with the key."""
    more_options: ClassVar[tuple[str, ...]] = ()
    """Options of only this provider."""
    models_path: ClassVar[str] = "/models"
    """Path of the list of models behind ``base_url``."""
    path: ClassVar[str]
    """Path of the request behind ``base_url``."""
    form: ClassVar[PartForm]
    """Form of parts of a content."""
    takes_files = True
    effort_name: ClassVar[str]
    """Parameter of the effort."""
    streamed: ClassVar[Mapping[str, Any]] = {"stream": True}
    """Parameters that ask for a stream with the usage in it."""
    substitutes: ClassVar[Mapping[str, str | None]]
    """Parameters that some models refuse, each with its substitute; None leaves the parameter out."""

    excludes_cached: ClassVar[bool] = False
    """Whether its server's input tokens exclude the cached ones and those written into the cache."""
    batch_kinds: ClassVar[tuple[BatchKind, ...]] = ()
    """Kinds of batches that it takes, see `microagents.elections.sample_batches.BatchKind`."""
    workspace_env: ClassVar[tuple[str, ...]] = ()
    """Environment variables that choose the workspace of the key."""

    _run_id = ""
    """Name of the run, for idempotency keys."""
    _terms: BatchTerms | None = None
    """The terms of its batches; None if calls go singly."""

    def __init__(self, spec: ModelSpec, prices: UserPrices = NO_PRICES) -> None:
        options = spec.options
        check_names(spec, self.more_options)
        self.name = f"{spec.provider}:{spec.name}"
        self.model = spec.name
        self.capabilities = capabilities_of(spec.provider, spec.name)
        self.base_url = self._address(options)
        self.timeout_s = number_in({"timeout_s": "120", **options}, "timeout_s")
        self._is_own_address = self.base_url == self.url
        if self._is_own_address:
            refuse_ended(spec, self.capabilities)
        self._tariff = self.tariff(spec, prices)
        self.priced = self._tariff is not None and self._tariff.is_known
        self.meter = Meter(self._tariff, excludes_cached=self.excludes_cached)
        self._key = self._find_key(options)
        self._redaction = Redaction(self._key)
        self.max_in_flight = connections_allowed()  # a call beyond them waits unsent, so that its timeout does not run
        self._rates: Mapping[str, Rate] = {}
        key = digest_of(self._key or "", 4).hex()
        self._throttled_as = f"{self.sdk}:{spec.name} at {self.base_url}, key {key}"
        self._options = options
        self._effort = self._checked_effort()
        self._has_schema = flag(options, "json_schema")
        for name, only in (("system", USER), ("calls", TEXT)):
            if options.get(name, only) != only:
                raise InvalidUsage(f"{name}={options[name]!r} is not known; the only one is {name}={only}")
        known = {**self.substitutes, **dict.fromkeys(self.streamed), **SENT_AS_TEXT, **dict.fromkeys(REASONING_FIELDS)}
        self._substitutes = Substitutes(self.name, known, (self.effort_name,) if "effort" in options else ())
        self._by = f"{self.name} at {self.base_url.partition('?')[0]}"
        self._samples = SampleMaker(self.name, self._by, self._redaction, self._items)
        self.failures = Failures(
            model=self.name,
            base_url=self.base_url,
            path=self.path,
            is_own_address=self._is_own_address,
            capabilities=self.capabilities,
            effort_name=self.effort_name,
            effort=options.get("effort"),
            redaction=self._redaction,
        )
        self._cache_key: str | None = None
        self.caches = CachedPrefixes(self.capabilities, self._tariff, options.get("stagger", AUTO))
        self.staggering = Staggering()
        self._no_such_path: Response | None = None
        """The answer of a server that does not know the path behind its address."""
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = WeakKeyDictionary()

    @classmethod
    def open(cls, spec: ModelSpec, context: Context) -> Self:
        """Return the model of a spec.

        Raises:
            InvalidUsage: an option is wrong, or ``json_schema`` does not fit the task.
        """
        (model := cls(spec, context.settings.get("prices", {}))).join(context)
        return model

    def join(self, context: Context) -> None:
        """Take the name of a run into the requests, and check the options against its task."""
        self._run_id = self._cache_key = context.run_id
        self._begin_batches(context.settings, parks=context.can_park)
        for task in context.tasks[:1]:  # all have one class
            if self._has_schema and task.format != "json":
                raise InvalidUsage(
                    f"json_schema=true constrains replies to JSON, but {type(task).__name__} asks for lines; give --format json, or leave "
                    "json_schema out"
                )

    @abstractmethod
    def _connect(self) -> Client:
        """Create the client of an event loop."""

    # -- batches ----------------------------------------------------------------------------------------------------------------------

    def _begin_batches(self, settings: Mapping[str, Any], *, parks: bool) -> None:
        """Send calls in batches, if the spec or the run says so; ``parks`` if inputs need not wait for them in memory.

        Raises:
            InvalidUsage: the provider has no such batches.
        """
        asked = self._options.get("batch") or settings.get("batch")
        if asked is None:
            return
        kind = next((each for each in self.batch_kinds if each == asked), None)
        if kind is None:
            takes = f"takes batch={either(self.batch_kinds)}" if self.batch_kinds else "has no batches"
            raise InvalidUsage(f"{self.name} {takes}, not batch={asked!r}; leave it out to send calls singly")
        workspace = [os.environ.get(name, "") for name in self.workspace_env]
        secret = "\0".join([self.base_url, self._key or "", *workspace])
        within = settings.get("batch_within")
        self._terms = BatchTerms(
            kind=kind,
            model=self.name,
            path=self.path,
            account=digest_of(secret, 8).hex(),
            ends_singly=settings.get("batch_then") == "single",
            within_s=None if within is None else hours_in(within) * 3600,
            single_s=self.timeout_s,
            parks=parks and kind == "file",
        )
        self.max_in_flight = None
        if kind == "file" and self._tariff is not None:
            self._tariff.asked = BATCH
            self.priced = self._tariff.is_known

    @abstractmethod
    def _batch_wire(self, sender: Sender, terms: BatchTerms) -> BatchWire:
        """Return the provider's interface for batches."""

    def _in_batches(self, sender: Client, terms: BatchTerms) -> BatchClient:
        """Return the client that sends the requests of another one in batches."""
        assert isinstance(sender, Sender), "only a sender of our own has batches"
        wire = self._batch_wire(sender, terms)
        return BatchClient(
            wire, sender, terms, key_of=self._key_of, most_usd=self.meter.most_of, prices=self.meter.prices_of
        )

    @property
    def batches(self) -> BatchClient | None:
        """The client of the running event loop, if it sends batches."""
        client = self._client()
        if isinstance(client, BatchClient):
            return client
        return None

    def _key_of(self, call: Call) -> str:
        """Return the idempotency key of a call."""
        taken = structs.replace(call, prompt=self._taken(call.prompt))
        return sample_keys.key_of(self._run_id, call, self._accepted(taken))

    async def listed(self) -> Answered:
        """Return the provider's list of models, which costs nothing; or why there is none."""
        sender = self._connect()
        try:
            return await sender.get(self.models_path)
        finally:
            await sender.close()

    async def tried(self) -> Answered:
        """Return the answer to a request that asks for nothing, and costs nothing: a refusal, if the server knows its path."""
        sender = self._connect()
        try:
            return await sender.post(self.path, {}, {})
        finally:
            await sender.close()

    async def forward(
        self, path: str, body: bytes, headers: Mapping[str, str], on_line: OnLine | None = None
    ) -> Answered:
        """Send a request that another program wrote, with the key of this model; returns the answer without the key."""
        client = self._client()
        assert isinstance(client, Sender)
        answer = await in_time(client.forward(path, body, headers, on_line), self.timeout_s)
        if isinstance(answer, Response):
            return structs.replace(answer, content=self._redaction.bytes_without_key(answer.content))
        return answer

    async def prepare(self) -> None:
        """Make the client: the imports that it needs take a second."""
        self._client()

    async def complete(self, call: Call) -> Sample:
        """Take one sample in one attempt. A request with a refused parameter is repeated without it.

        Raises:
            ModelUnavailable: no reply arrived, or it cannot be read.
        """
        return (await self._take(call))[0]

    def refusal_of(self, file: Media) -> str | None:
        """Say why it does not take a picture or a file; None if it does, as far as is known."""
        return super().refusal_of(file) or refusal_of(file, self.name, self.capabilities, self.form)

    async def _take(self, call: Call) -> Sequence[Sample]:
        """Take the samples of a request in one attempt.

        Raises:
            ModelUnavailable: no reply arrived, or it cannot be read.
        """
        check_length(call, self.name, self.capabilities.context_window)
        if self._terms is not None:
            answer = await self._ask(self._client(), call)
        else:
            answer = await in_time(self._ask_when_known(self._client(), call), self.timeout_s)
        samples = answer if isinstance(answer, ModelUnavailable) else self._samples_in(answer, call)
        # Raised outside of every except clause: its context would be the SDK's error, which contains the request and the key.
        if isinstance(samples, ModelUnavailable):
            raise samples
        return samples

    async def close(self) -> None:
        """Close the connections of the running event loop. A later call opens new ones."""
        self.staggering.clear()
        self._no_such_path = None
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    @property
    def rates(self) -> Mapping[str, Rate]:
        """Requests and tokens a minute that the provider allows, by its first reply."""
        return self._rates

    @property
    def takes_turns(self) -> bool:  # type: ignore[override]  # it changes with what the server refuses
        """Whether it takes the turns and the tools of prompts."""
        return "calls" not in self._options and TOOLS not in self._substitutes.refused

    @property
    def throttled_as(self) -> str | None:
        """Provider, model, address and a hash of the key, by which providers limit; None in batches, which providers take at once."""
        return self._throttled_as if self._terms is None else None

    @property
    def refused(self) -> Mapping[str, str | None]:
        """Parameters that are not sent since the model refuses them, each with the one sent instead."""
        return self._substitutes.refused

    def refuse(self, refused: Mapping[str, str | None]) -> None:
        """Take over the refusals that an earlier sitting met."""
        self._substitutes.take_over(refused)

    @abstractmethod
    def _parameters(self, call: Call) -> Parameters:
        """Return the optional parameters of a request by their names in errors, such as ``reasoning.effort``."""

    @abstractmethod
    def _content(self, call: Call, parameters: Parameters) -> Body:
        """Return the rest of the request: the model and the prompt.

        Args:
            call: the call.
            parameters: the ones to send.
        """

    @abstractmethod
    def _read(self, reply: Body, call: Call) -> Sample:
        """Read the sample from the reply to a call.

        Raises:
            ValueError: the reply has another form.
        """

    def _read_all(self, reply: Body, call: Call) -> Sequence[Sample]:
        """Read all samples of a reply to a call that asks for several."""
        return [self._read(reply, call)]

    def _checked_effort(self) -> str | None:
        return effort_of(self.name, self._options, self.capabilities)

    def _client(self) -> Client:
        # Connections belong to an event loop, and a program may run several in a row.
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            client = self._connect()
            self._clients[loop] = client if self._terms is None else self._in_batches(client, self._terms)
        return self._clients[loop]

    @property
    def has_key(self) -> bool:
        """Whether calls carry a key of the user."""
        return self._key not in (None, "none")

    def _find_key(self, options: Mapping[str, str]) -> str | None:
        return key_in(options, self.key_env, self.base_url, is_own_address=self._is_own_address)

    def at_most(self, call: Call) -> Most | None:
        """Return the most that a call can use; None if only replies tell the cost of its files."""
        of_files = most_file_tokens([each.is_picture for each in call.prompt.all_files], self.capabilities)
        if of_files is None:
            return None
        read = most_tokens(call.prompt) + of_files
        written = call.samples * call.max_output_tokens
        return Most(tokens=read + written, cost_usd=self.meter.most_usd(read, written))

    @classmethod
    def tariff(cls, spec: ModelSpec, prices: UserPrices) -> Tariff | None:
        """Price of calls to the model of a spec; None if it is unknown.

        Raises:
            InvalidUsage: a price in the spec is refused.
        """
        options = spec.options
        asked = options.get("service_tier")
        if ("price_in" in options) != ("price_out" in options):
            raise InvalidUsage("price_in and price_out go together: the cost of a call needs both")
        if "price_in" in options:
            return flat_tariff(number_in(options, "price_in"), number_in(options, "price_out"), asked=asked)
        return tariff_of(
            (f"{spec.provider}:{spec.name}", f"{cls.sdk}:{spec.name}"), cls._address(options), prices, asked=asked
        )

    @classmethod
    def _address(cls, options: Mapping[str, str]) -> str:
        return checked_url(options.get("base_url", os.environ.get(cls.url_env) or cls.url))

    async def _ask_when_known(self, client: Client, call: Call) -> Answered:
        """Ask; at an address that may be a mistake the first call goes ahead, and its answer is that to all if there is no such path."""
        if self.failures.meant_url is None:
            return await self._ask_in_order(client, call)
        async with self.staggering.behind_first(self.base_url):
            if self._no_such_path is not None:
                return self._no_such_path
            answer = await self._ask_in_order(client, call)
            if isinstance(answer, Response) and answer.status_code in NO_SUCH_PATH:
                self._no_such_path = answer
            return answer

    async def _ask_in_order(self, client: Client, call: Call) -> Answered:
        """Ask; of requests that share a cached prefix, the first one writes the cache before the others read it."""
        async with self.staggering.behind_first(*self.caches.shared(call)) as begin:
            return await self._ask(client, call, begin)

    async def _ask(self, client: Client, call: Call, begin: OnLine | None = None) -> Answered:
        """Ask; a reply whose beginning others wait for is streamed."""
        while True:
            known = frozenset(self._substitutes.refused)
            taken = structs.replace(call, prompt=self._taken(call.prompt))
            parameters = self._accepted(taken, is_streamed=begin is not None)
            headers = {sample_keys.HEADER: sample_keys.key_of(self._run_id, call, parameters), **self._headers(taken)}
            body = {**self._content(taken, parameters), **_nested(parameters)}
            answer = await client.post(self.path, body, headers, begin)
            if isinstance(answer, Response):
                answer = self._decoded(answer, call)
            if isinstance(answer, ModelUnavailable) or not self._learns(answer, taken.prompt, parameters, known):
                return answer

    def _taken(self, prompt: Prompt) -> Prompt:
        """Return the prompt as the model takes it: perhaps as one text, or without a system part."""
        taken = prompt if self.takes_turns else prompt.flat
        return as_one_part(taken) if self._options.get("system") == USER else taken

    def _learns(self, answer: Response, prompt: Prompt, parameters: Parameters, known: Container[str]) -> bool:
        """Whether an answer refuses a part of a request that may be left out, or written in another way."""
        if answer.status_code not in REFUSED_CONVERSATIONS:
            return False
        error, sent = error_in(answer.found), dict(parameters)
        if any(turn.items for turn in prompt.turns):
            sent |= dict.fromkeys(REASONING_FIELDS)
        if answer.status_code in REFUSED_PARAMETERS and self._substitutes.learn(error, sent):
            return True
        if not prompt.is_conversation:
            return False
        has_calls = any(turn.calls for turn in prompt.turns)
        return self._substitutes.learn_of_turns(error.message, known, has_calls=has_calls)

    def _opened(self, prompt: Prompt, contents: Mapping[str, bytes]) -> tuple[Prompt, History]:
        """Return a prompt with all texts that open it in its user part, and the turns behind them."""
        refused = (*self._substitutes.refused, *((UNREASONED,) if self._wants_reasoning else ()))
        return opened(prompt, self._by, refused, contents)

    @property
    def _wants_reasoning(self) -> bool:
        """Whether it is known to refuse calls without the reasoning before them."""
        return False

    def _constrains(self, call: Call) -> bool:
        """Whether the output of a call is constrained to the form of its reply; calls have the schemas of their tools."""
        return self._has_schema and not (call.prompt.tools and issubclass(call.reply, Calls))

    def _items(self, said: Said, calls: Sequence[NativeCall]) -> Any:  # noqa: ARG002 - for wires that give more than calls
        """Return what the wire wants back with the calls of a reply; None for nothing."""
        return None

    def _decoded(self, response: Response, call: Call) -> Answered:
        """Decode the JSON of a response; an error in the place of a reply, or behind a gateway's status of its own, gives it its status."""
        if len(response.content) > MAX_BODY_BYTES:
            return self.failures.of("garbled", f"longer than {MAX_BODY_BYTES} bytes", response)
        try:
            found = found_in(response.content, call.samples)
        except UNREADABLE as error:
            found = plain(response.content)
            if response.is_success:
                return self.failures.unread(error, structs.replace(response, found=found), call.prompt)
        status, told = response.status_code, status_told(found)
        is_gateways = failure_kind(status) == "server" and told is not None and failure_kind(told) != "server"
        if response.is_success or is_gateways:
            status = told or status
        return structs.replace(response, found=found, status_code=status)

    def _headers(self, call: Call) -> dict[str, str]:  # noqa: ARG002 - for providers that have some
        """Return further headers of a request."""
        return {}

    def _accepted(self, call: Call, *, is_streamed: bool = False) -> Parameters:
        """Return the optional parameters of a request, without any that the model refuses."""
        parameters = self._parameters(call)
        if is_streamed:
            parameters |= self.streamed
        if "temperature" in parameters and not self.capabilities.takes(self.capabilities.temperature, self._effort):
            self._substitutes.refused.setdefault("temperature", None)
        self._substitutes.put_into(parameters)
        return parameters

    def _samples_in(self, response: Response, call: Call) -> Sequence[Sample] | ModelUnavailable:
        if not self._rates:
            self._rates = rates_of(response.headers)
        if not response.is_success:
            return self.failures.refused(response, call.prompt)
        try:
            return self._read_all(object_in(response.found), call)
        except UNREADABLE as error:
            return self.failures.unread(error, response, call.prompt)


def as_one_part(prompt: Prompt) -> Prompt:
    """Return the prompt with its system part at the beginning of the user's."""
    if not prompt.system:
        return prompt
    static = f"{prompt.system}\n\n"
    chars = len(static) + prompt.static_chars
    return structs.replace(prompt, system="", user=static + prompt.user, static_chars=chars)


def _nested(parameters: Parameters) -> Body:
    """Return the parameters as JSON: ``reasoning.effort`` is the field ``effort`` of the object ``reasoning``."""
    body: Body = {}
    for name, value in parameters.items():
        *above, last = name.split(".")
        inner = body
        for each in above:
            inner = inner.setdefault(each, {})
        inner[last] = value
    return body
