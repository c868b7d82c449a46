"""One request and its replies: the body of each sample is sent on, and the bytes of its reply are kept for the election."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import cached_property
from typing import Any

from msgspec import Struct, field, structs

from microagents.base.aio import TaskScope
from microagents.base.errors import ModelUnavailable
from microagents.elections.election import total_usd
from microagents.models.http.events import is_streamed, streamed_reply
from microagents.models.http.failures import REDIRECTED
from microagents.models.http.media_parts import most_file_tokens
from microagents.models.http.provider import HttpModel
from microagents.models.http.refusals import failure_kind, plain, retry_after_s, status_told, words_in
from microagents.models.http.replies import REPLY_FIELDS, UNREADABLE, decode, name_in, object_in, reply_in
from microagents.models.http.sending import MAX_BODY_BYTES, OnLine, Response
from microagents.models.model import Call, Model, Most
from microagents.replies.chat import Sample, Usage
from microagents.replies.masses import LawOfMass, Mass
from microagents.roles.limits.reservations import units
from microagents.roles.solver.permits import MAY_BE_BILLED
from microagents.web.endpoint.acts import UNREAD, vote_text
from microagents.web.endpoint.asked import LISTED, SEALED, ForwardedRequest
from microagents.web.endpoint.caps import Caps, Reserved
from microagents.web.endpoint.certificates import law_of, mass_in
from microagents.web.endpoint.policy import Policy
from microagents.web.endpoint.wires import MESSAGES, Withheld

_WORDS = {SEALED: "encrypted", LISTED: "logprobs"}
"""Words by which models refuse to include their reasoning, and the log-probabilities of tokens."""
UNKNOWN_FILE_TOKENS = 50_000
"""Tokens of a file or picture of a model whose rule is unknown: no provider is known to count a picture at more."""
MAX_WORDS = 300
"""Characters of a provider's words in an error."""


class ForwardedReply(Struct, frozen=True, kw_only=True):
    """One reply as it came."""

    body: bytes
    id: str
    """Id that it names; empty for none."""
    is_bare: bool = False
    """Whether its log-probabilities are not for the client."""
    acts: str
    """Its calls as a vote, the JSON of `Acts`."""
    usage: Usage
    mass: Mass | None = None
    """Probability of the whole reply, if it was asked for and is told."""


class Exchange(Struct, eq=False, dict=True):
    """One request with its replies."""

    asked: ForwardedRequest
    policy: Policy
    """How its replies vote."""
    ceiling: int | None
    """Most output tokens of a reply, by the operator; None for the client's own cap."""
    keep: Callable[[int, ForwardedReply], None] | None = None
    """Keeps the reply of a sample."""
    replies: dict[int, ForwardedReply] = {}
    """Replies by their place in the order of launches."""
    in_flight: int = 0
    """Number of samples that were sent and have not ended."""
    refusal: Response | None = None
    """The last answer of a provider that is no reply."""
    over_cap: Withheld | None = None
    """Why a sample was not sent; None while none was refused."""
    failure: ModelUnavailable | None = None
    """Why the last sample without a reply has none."""
    is_wanted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while a client waits for the reply: without one no further sample is begun."""

    @cached_property
    def cap(self) -> int:
        """Output tokens of a reply at most."""
        return self.asked.cap(self.ceiling)

    def taken(
        self, answer: Response | ModelUnavailable, provider: HttpModel, law: LawOfMass | None = None
    ) -> ForwardedReply | ModelUnavailable:
        """Read the answer of a provider; one that is no reply is a failure, and kept. With a law the reply has its mass, if it can."""
        if isinstance(answer, ModelUnavailable):
            return answer
        if len(answer.content) > MAX_BODY_BYTES:
            return ModelUnavailable("broken", f"the reply is longer than {MAX_BODY_BYTES} bytes")
        acts = ""
        try:
            found, is_whole = _read(answer, self.asked.choices)
            if is_whole:
                acts = vote_text(found, self.asked, self.policy)
        except UNREADABLE:
            found, is_whole = {"error": plain(answer.content)}, False
        status = answer.status_code
        if answer.is_success:
            status = status_told(found) or status
        if status >= 300:  # noqa: PLR2004 - redirects are not followed
            self.refusal = structs.replace(answer, status_code=status, found=found)
            words = words_in(found)[:MAX_WORDS] or (REDIRECTED if answer.is_redirect else f"HTTP {status}")
            return ModelUnavailable(failure_kind(status), words, status, retry_after_s(answer.headers))
        if not is_whole:
            beside = {name: each for name, each in found.items() if name not in REPLY_FIELDS}
            words = words_in(beside)[:MAX_WORDS]
            return ModelUnavailable("broken", words or "the reply is no whole reply in the form of its wire")
        if is_streamed(answer.content) != self.asked.streams:
            form = "whole" if self.asked.streams else "streamed"
            return ModelUnavailable("refused", f"the reply is {form}, which the client did not ask for and cannot read")
        usage = provider.meter.usage(found)
        mass = None
        if law is not None and UNREAD not in acts:
            mass = mass_in(found, self.asked, usage, law)
        return ForwardedReply(
            body=answer.content,
            id=name_in(found.get("id")),
            is_bare=law is not None and not self.asked.has_logprobs,
            acts=acts,
            usage=usage,
            mass=mass,
        )


def _read(answer: Response, choices: int) -> tuple[dict[str, Any], bool]:
    """Return the reply in an answer, and whether it is whole; of several choices, which are joined, each must have the wire's form."""
    if is_streamed(answer.content):
        stream = streamed_reply(answer.content, 1)
        found = object_in(stream.whole())
        is_whole, is_of_wire = bool(stream.finished) or not (stream.is_cut or stream.failure), not stream.is_wrapped
    else:
        given = decode(answer.content)
        reply = reply_in(given)
        found = object_in(reply)
        is_of_wire = reply is given and "choices" in found
        is_whole = any(isinstance(found.get(name), list) for name in REPLY_FIELDS)
    return found, is_whole and (is_of_wire or choices == 1)


class ForwardingModel(Model):
    """A model that is asked with the bodies of clients. It gives the acts of each reply as a sample, and keeps the reply.

    Args:
        provider: sends requests, with its own key.
        exchanges: the open exchanges, by the path of their elections.
        caps: bound the cost of all samples.
    """

    def __init__(self, provider: HttpModel, exchanges: Mapping[str, Exchange], caps: Caps) -> None:
        self._caps = caps
        self._refused: set[str] = set()
        """Further parts of replies that it refuses."""
        self._provider = provider
        self._exchanges = exchanges
        self._scope = TaskScope()
        """The samples in flight. A hedge that the decision does without ends in its own time: it is paid, and its cost is then known."""
        self.priced = provider.priced
        self.max_in_flight = provider.max_in_flight

    @property
    def throttled_as(self) -> str | None:
        """Name of the provider's own throttle."""
        return self._provider.throttled_as

    async def prepare(self) -> None:
        """Make the client."""
        await self._provider.prepare()

    def at_most(self, call: Call) -> Most:
        """Bound the usage of a call."""
        exchange = self._exchanges[call.id.election.path]
        asked = exchange.asked
        of_files = most_file_tokens(asked.are_pictures, self._provider.capabilities)
        if of_files is None:
            of_files = UNKNOWN_FILE_TOKENS * len(asked.are_pictures)
        read = asked.input_tokens + of_files
        return Most(tokens=read + exchange.cap, cost_usd=self._provider.meter.most_usd(read, exchange.cap))

    async def complete(self, call: Call) -> Sample:
        """Forward the request once.

        Raises:
            ModelUnavailable: there is no whole reply.
        """
        exchange, seq = self._exchanges[call.id.election.path], call.id.seq
        if seq not in exchange.replies:
            await exchange.is_wanted.wait()
            try:
                async with self._provider.staggering.behind_first(
                    *self._shared_prefixes(exchange.asked, call)
                ) as begin:
                    reply = await self._paid(exchange, call, begin)
            except ModelUnavailable as error:
                exchange.failure = error
                if error.retryable:
                    self._share(exchange)
                if error.is_unread:  # it says nothing of the others, while a run ends at some in a row
                    raise ModelUnavailable("server", *error.args[1:]) from None
                raise
            exchange.replies[seq] = reply
            if exchange.keep is not None:
                exchange.keep(seq, reply)
        found = exchange.replies[seq]
        return Sample(text=found.acts, usage=found.usage, model=self._provider.name, mass=found.mass)

    def _share(self, failed: Exchange) -> None:
        """Tell a failure to the requests without a sample, too: in an outage few calls are sent, and it may end them unsent."""
        for each in self._exchanges.values():
            if each.failure is None and not each.replies:
                each.failure = failed.failure
                if each.asked.wire is failed.asked.wire:
                    each.refusal = failed.refusal

    def _shared_prefixes(self, asked: ForwardedRequest, call: Call) -> list[str]:
        """Return a name of the prompt of a request, if it pays that its other samples read it from the provider's cache."""
        is_cached = asked.wire is not MESSAGES or b'"cache_control"' in asked.whole
        if self._provider.caches.staggers(len(asked.whole), is_cached=is_cached):
            return [call.id.election.path]
        return []

    async def close(self) -> None:
        """Cancel the samples in flight."""
        await self._scope.close()

    async def _paid(self, exchange: Exchange, call: Call, begin: OnLine | None) -> ForwardedReply:
        """Forward the request once the caps have room for its cost, and note the cost."""
        most_usd = self.at_most(call).cost_usd or 0.0
        async with AsyncExitStack() as room:
            try:
                reserved = await room.enter_async_context(self._caps.reserved(exchange.asked.caller, most_usd))
            except Withheld as reached:
                exchange.over_cap = reached
                raise ModelUnavailable("refused", str(reached)) from None
            sending = self._scope.start(self._sent(exchange, call, begin, reserved, room.pop_all()))
        return await asyncio.shield(sending)

    async def _sent(
        self, exchange: Exchange, call: Call, begin: OnLine | None, reserved: Reserved, room: AsyncExitStack
    ) -> ForwardedReply:
        exchange.in_flight += 1
        async with room:
            try:
                reply = await self._forwarded(exchange, call, begin)
            except ModelUnavailable as error:
                if error.kind not in MAY_BE_BILLED:
                    reserved.spent = 0
                raise
            finally:
                exchange.in_flight -= 1
            if reply.usage.cost_usd is not None:
                reserved.spent = units(reply.usage.cost_usd)
            self._caps.cost_usd = total_usd([self._caps.cost_usd, reply.usage.cost_usd])
            return reply

    def law_of(self, exchange: Exchange) -> LawOfMass | None:
        """Return the law of the masses of the replies to a request; None if they have none."""
        if LISTED in self._refused:
            return None
        return law_of(self._provider, exchange.asked, exchange.policy)

    async def _forwarded(self, exchange: Exchange, call: Call, begin: OnLine | None) -> ForwardedReply:
        asked, policy = exchange.asked, exchange.policy
        path = asked.behind(asked.wire.upstream)
        while True:
            law: LawOfMass | None = None
            added, more = list[str](), dict[str, int]()
            if asked.lacks_seals and SEALED not in self._refused:
                added.append(SEALED)
            if call.needs_mass:
                law = self.law_of(exchange)
            if law is not None and not asked.has_logprobs:
                added.append(LISTED)
                more.update(asked.wire.logprobs)
            body = asked.body(
                self._provider.model,
                ceiling=exchange.ceiling,
                seq=call.id.seq,
                temperature=policy.temperature,
                more=more,
                includes=added,
            )
            answer = await self._provider.forward(path, body, asked.headers, begin)
            reply = exchange.taken(answer, self._provider, law)
            if isinstance(reply, ForwardedReply):
                if law is not None and reply.mass is None and UNREAD not in reply.acts:
                    self._refused.add(LISTED)  # they do not tell how likely a whole reply is
                return reply
            refused = [each for each in added if _WORDS[each] in str(reply).lower()]
            if not refused:
                raise reply
            self._refused.update(refused)  # such as a model without reasoning
