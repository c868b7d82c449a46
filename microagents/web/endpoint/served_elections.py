"""Elections of an endpoint: each request is one election of the engine, in a run that lasts as long as the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Struct
from pydantic import Field

import microagents.roles  # noqa: F401 - names the roles of an election
from microagents.actors.role import Context, Deployment, Strategy
from microagents.base.errors import InvalidUsage, ModelUnavailable, Undecided
from microagents.base.messages import address_of
from microagents.elections.count import Count
from microagents.elections.election import Ballot, Elect, ElectionId, Question, Verdict
from microagents.journal.messages import Recall, RecordDecision
from microagents.journal.reading import journal_of
from microagents.journal.sitting import JournalConfig
from microagents.models.http.provider import HttpModel
from microagents.models.http.sending import Response
from microagents.models.model import ModelSpec, open_model
from microagents.replies.chat import Format, Prompt, Sampling, decoder_of, encode_reply, fingerprint
from microagents.replies.turns import canonical
from microagents.roles.limits.limiter import Limiter
from microagents.roles.recorder import RecordEnding, Recorder
from microagents.runs.plan import RunPlan, experiment_of
from microagents.runs.settings import Settings, validated
from microagents.runtimes.local import LocalRuntime
from microagents.task import Task
from microagents.web.endpoint.acts import Acts
from microagents.web.endpoint.asked import ForwardedRequest
from microagents.web.endpoint.caps import Caps
from microagents.web.endpoint.exchange import Exchange, ForwardedReply, ForwardingModel
from microagents.web.endpoint.wires import WIRES, Wire

OUTAGE_S = 5.0
"""Seconds for which a call is tried again: a client waits for it, and tries again itself."""
CALL_S = 600.0
"""Seconds of a whole call, unless the spec of the model says otherwise: agents ask for long replies."""

PROVIDERS = ("openai", "openai-responses", "anthropic")
"""Providers whose requests can be forwarded."""


class Requests(Task[None]):
    """Requests of clients, each of which is an election."""

    format: ClassVar[Format] = "json"
    default_strategy: ClassVar[str] = "microagents.web.endpoint.served_elections:Voted"
    progress_unit: ClassVar[str] = "request"


class Voted(Strategy):
    """One election for each request."""

    k: Annotated[int, Field(ge=1)] = 3
    """Lead of texts, and of the tools without an effect in the policy."""


class Elected(Struct, frozen=True, kw_only=True, dict=True):
    """The reply of an election, and how it came about."""

    number: int
    """Number of the election."""
    verdict: Verdict
    reply: ForwardedReply
    """The reply that was launched first among those with most votes."""
    exchange: Exchange

    @property
    def is_elected(self) -> bool:
        """Whether a vote has decided it, and not only led."""
        return self.verdict.outcome == "decided"

    @cached_property
    def acts(self) -> Acts:
        """The calls of the reply."""
        assert self.verdict.winner is not None
        found: Acts = decoder_of(Acts).decode(self.verdict.winner)
        return found

    def differing(self, tool: str) -> list[str]:
        """Name the arguments of a tool in which the calls of samples differ."""
        unvoted = self.exchange.policy.unvoted.get(tool, ())
        values: dict[str, set[str]] = {}
        for value, _ in self.verdict.tally:
            for call in decoder_of(Acts).decode(value).calls:
                if call.tool == tool:
                    for name, given in call.arguments.items():
                        values.setdefault(name, set()).add(canonical(given))
        return sorted(name for name, given in values.items() if len(given) > 1 and name not in unvoted)

    @property
    def votes(self) -> str:
        """The votes, such as ``3 of 4``."""
        counts = [votes for _, votes in self.verdict.tally]
        return f"{counts[self.verdict.leader or 0]} of {sum(counts)}"


class ServedElections:
    """Holds elections on requests. `elections` opens it."""

    def __init__(
        self, runtime: LocalRuntime, providers: Mapping[str, HttpModel], exchanges: dict[str, Exchange], k: int
    ) -> None:
        self._messenger = runtime.messenger
        self._providers = providers
        self._models: dict[str, tuple[str, ...]] = {}
        """The pool of the wires of each SDK."""
        for spec, provider in providers.items():
            self._models[provider.sdk] = (*self._models.get(provider.sdk, ()), spec)
        self._exchanges = exchanges
        self._k = k
        self._numbers = count(1)

    @property
    def wires(self) -> list[Wire]:
        """The wires that its models speak."""
        return [wire for wire in WIRES if wire.sdk in self._models]

    async def passed_on(self, asked: ForwardedRequest, path: str) -> Response:
        """Forward a request that is no election to the first model of its wire.

        Raises:
            ModelUnavailable: no answer arrived.
        """
        provider = self._providers[self._models[asked.wire.sdk][0]]
        target = f"{path}?{asked.query}" if asked.query else path
        answer = await provider.forward(target, asked.body(provider.model), asked.headers)
        if isinstance(answer, ModelUnavailable):
            raise answer
        return answer

    async def hold(self, exchange: Exchange) -> Elected:
        """Elect the reply to a request.

        Raises:
            MicroagentsError: a sample has no reply.
        """
        number = next(self._numbers)
        rule, path = exchange.policy.rule(self._k), f"0/request/{number}"
        question = Question(
            prompts=(Prompt(user=exchange.asked.digest.hex()),),
            reply=_ACTS,
            form=fingerprint(Acts),
            rule=rule,
            sampling=Sampling(max_output_tokens=exchange.cap, flag_above_tokens=None),
            models=self._models[exchange.asked.wire.sdk],
            max_draws=rule.most,
            prose=exchange.policy.unvoted,
        )
        self._exchanges[path] = exchange
        election = question.id_at(path)
        try:
            verdict = await self._messenger.ask(Elect(id=election, question=question))
        except ModelUnavailable:
            if exchange.over_cap is None or 0 not in exchange.replies:
                raise
            verdict = _led(election, question, exchange)
        finally:
            del self._exchanges[path]
        self._messenger.tell(RecordDecision(id=election, verdict=verdict, correct=None, reply=_ACTS))
        if verdict.winner is None:
            raise exchange.failure or Undecided(path, len(verdict.ballots), "no reply")
        first = next(each.seq for each in verdict.ballots if isinstance(each, Ballot) and each.value == verdict.winner)
        return Elected(number=number, verdict=verdict, reply=exchange.replies[first], exchange=exchange)


def _led(election: ElectionId, question: Question, exchange: Exchange) -> Verdict:
    """Return the verdict of the replies that the caps had room for."""
    count = Count(election, question)
    for seq in range(len(exchange.replies)):
        if seq in exchange.replies and not count.is_over:
            value = encode_reply(decoder_of(Acts).decode(exchange.replies[seq].acts))
            count.add(Ballot(seq=seq, value=value, cost_usd=exchange.replies[seq].usage.cost_usd))
    return count.verdict()


@asynccontextmanager
async def elections(
    models: Sequence[str],
    *,
    k: int,
    caps: Caps,
    run_id: str,
    runs_dir: Path | None,
    settings: Mapping[str, object],
) -> AsyncIterator[ServedElections]:
    """Begin the run of an endpoint, which lasts as long as the block.

    Args:
        models: specs of its models; the models of one SDK are the pool of its wires.
        k: lead of texts, and of tools without an effect.
        caps: bound the cost of all samples.
        run_id: name of the run.
        runs_dir: folder of its journal; None for none.
        settings: settings of the run.

    Raises:
        InvalidUsage: a model speaks none of the wires, or is refused.
    """
    exchanges: dict[str, Exchange] = {}
    providers = {spec: _provider_of(spec, settings) for spec in models}
    unpriced = [spec for spec, each in providers.items() if not each.priced]
    if caps.are_set and unpriced:
        raise InvalidUsage(
            f"the price of {unpriced[0]!r} is unknown, so no cap can be kept; give it in the spec, @price_in=...,price_out=..., or in a "
            "file, --prices FILE"
        )
    named = {"models": {"": tuple(providers)}, "run_id": run_id, "max_outage_s": OUTAGE_S, "resend_stragglers": False}
    plan = RunPlan(
        tasks=[Requests()],
        listed=False,
        strategy=Voted(k=k),
        settings=validated(Settings, "the endpoint", {**settings, **named}),
        model_objects={spec: ForwardingModel(each, exchanges, caps) for spec, each in providers.items()},
    )
    experiment, own = experiment_of(plan)
    journal = None if runs_dir is None else journal_of(runs_dir, run_id)
    journaling = JournalConfig(path=journal, experiment=experiment, own=own, full=False)
    recorder = Deployment(role=Recorder, options={"journaling": journaling}, in_driver=True)
    deployments = [recorder, Deployment(role=Limiter, in_driver=True), *plan.strategy.deployments()]
    async with LocalRuntime(plan.context(), deployments) as runtime:
        await runtime.messenger.ask(Recall(path="0"))  # the journal of a run in which nothing begins is removed
        yield ServedElections(runtime, providers, exchanges, k)
        await runtime.flush()
        await runtime.messenger.ask(RecordEnding(outcome="completed", reason=None, result=b"null"))


def _provider_of(spec: str, settings: Mapping[str, object]) -> HttpModel:
    parsed = ModelSpec.parse(spec)
    context = Context(run_id="serve", seed=0, tasks=[], strategy=Strategy(), settings=settings)
    model = open_model(spec, context)
    if not isinstance(model, HttpModel) or parsed.provider not in PROVIDERS:
        raise InvalidUsage(
            f"{spec!r} cannot be served: requests go on as they came, so its provider must speak their wire; give "
            "openai:NAME or anthropic:NAME, with @base_url=... for vLLM, llama.cpp, OpenRouter and others"
        )
    if "timeout_s" not in parsed.options:
        model.timeout_s = CALL_S
    return model


_ACTS = address_of(Acts)
