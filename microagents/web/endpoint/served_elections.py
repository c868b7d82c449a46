"""Elections of an endpoint: each request is one election of the engine, in a run that lasts as long as the server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct, json
from pydantic import Field

import microagents.roles  # noqa: F401 - names the roles of an election
from microagents.actors.registry import MODELS
from microagents.actors.role import Deployment, Strategy
from microagents.base.aio import TaskScope
from microagents.base.errors import InvalidUsage, ModelUnavailable, Undecided
from microagents.base.messages import address_of
from microagents.elections.count import Count
from microagents.elections.election import Ballot, Elect, ElectionId, Question, Verdict, total_usd
from microagents.elections.rules import PortableRule, certain
from microagents.journal.messages import Record, RecordDecision, RecordProgress, answered
from microagents.journal.reading import journal_of
from microagents.journal.sitting import JournalConfig
from microagents.models.http.provider import HttpModel
from microagents.models.http.sending import Response
from microagents.models.model import Model, ModelSpec
from microagents.replies.chat import Prompt, Sampling
from microagents.replies.reply_forms import decoder_of, encode_reply, fingerprint
from microagents.roles.keeper import Keeper
from microagents.roles.solver.health import OUT_AFTER_S
from microagents.runs.driver.deploying import deployments_of
from microagents.runs.plan import RunPlan, experiment_of
from microagents.runs.settings import Settings, validated
from microagents.runtimes.local import LocalRuntime
from microagents.task import Task
from microagents.web.endpoint.acts import Acts, shares_of
from microagents.web.endpoint.asked import ForwardedRequest
from microagents.web.endpoint.callers import Caller, CostLimit
from microagents.web.endpoint.caps import Caps, today
from microagents.web.endpoint.day_run import DayRun
from microagents.web.endpoint.exchange import Exchange, ForwardedReply, ForwardingModel
from microagents.web.endpoint.policy import Policy
from microagents.web.endpoint.wires import WIRES, Wire, Withheld
from microagents.work.conductor import Conductor
from microagents.work.durable import Work

OUTAGE_S = 3.5
"""Seconds for which a call is tried again: a client waits for it, and tries again itself."""
CALL_S = "600"
"""Seconds of a whole call, unless the spec of the model says otherwise: agents ask for long replies."""
OF_REQUESTS = ("batch", "calls", "effort", "json_schema", "service_tier", "system")
"""Options of a model's spec that shape requests."""
PROVIDERS = ("openai", "openai-responses", "anthropic")
"""Providers whose requests can be forwarded."""


class Requests(Task[None]):
    """Requests of clients, each of which is an election."""

    format = "json"
    default_strategy = "microagents.web.endpoint.served_elections:Voted"
    progress_unit = "request"


class Served(Conductor[Requests, "Voted"]):
    """Stands for the server in the runs of an endpoint: it alone holds their elections."""

    async def conduct(self, work: Work[Requests, Voted]) -> object:
        """Refuse to resume.

        Raises:
            InvalidUsage: always.
        """
        raise InvalidUsage(
            f"run {work.role.context.run_id} is one of `microagents serve`, which begins its runs itself"
        )


class Voted(Strategy):
    """One election for each request."""

    solves = (Requests,)
    conductor = Served
    k: Annotated[int, Field(ge=1)] = 3
    """Lead of texts, and of the tools without an effect in the policy."""


class ElectedReply(Struct, frozen=True, kw_only=True, dict=True):
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

    @cached_property
    def sums(self) -> dict[str, Any]:
        """How the reply came about, and the usage of all samples of its election."""
        usages = [each.usage for each in self.exchange.replies.values()]
        read = sum([each.input_tokens or 0 for each in usages])
        written = sum([each.output_tokens or 0 for each in usages])
        return {
            "election": self.number,
            "elected": self.is_elected,
            "votes": self.votes,
            "samples": len(usages),
            "in_flight": self.exchange.in_flight,
            "input_tokens": read,
            "output_tokens": written,
            "cost_usd": total_usd([each.cost_usd for each in usages]),
        }

    def check(self) -> None:
        """Withhold a reply that was not elected and calls a tool that is declared destructive.

        Raises:
            Withheld: it is one.
        """
        policy = self.exchange.policy
        calls = [call for call in self.acts.calls if policy.of(call.tool).effect == "destructive"]
        if self.is_elected or not calls:
            return
        tool = calls[0].tool
        shares = shares_of(tool, [decoder_of(Acts).decode(value) for value, _ in self.verdict.tally])
        unvoted = policy.unvoted.get(tool, ())
        differing = [name for name, share in shares.items() if name and share < 1 and name not in unvoted]
        advice = "others call other tools"
        if differing:
            ignored = json.encode(sorted({*unvoted, differing[0]})).decode()
            advice = (
                f"they differ in {', '.join(differing)}; an argument that does not matter casts no vote with this line of the policy: "
                f"[tools.{tool}] ignore = {ignored}"
            )
        raise Withheld(409, f"no call of {tool} was elected, with {self.votes} votes for the first: {advice}")

    @property
    def votes(self) -> str:
        """The votes, such as ``3 of 4``."""
        counts = [votes for _, votes in self.verdict.tally]
        return f"{counts[self.verdict.leader or 0]} of {sum(counts)}"


class Endpoint(Struct, frozen=True, kw_only=True):
    """Models, policy, address and access of an endpoint."""

    models: Sequence[str]
    """Specs of models, which take turns on the wires of their SDK."""
    fallbacks: Sequence[str] = ()
    """Specs of models that are asked while one of them is out."""
    k: int = 3
    ceiling: int | None = None
    """Most output tokens of a reply; None for the client's own cap."""
    run_id: str = "serve"
    """Name of the run of the first day; the name of a later run ends with its day."""
    runs_dir: Path | None = None
    """Folder of the journals; None for none."""
    settings: Mapping[str, Any] = {}
    """Settings of the runs."""
    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free one."""
    callers: Sequence[Caller] = (Caller(policy=Policy()),)
    """Who may use it, each by a token."""
    limit: CostLimit | None = None
    """Limit of the cost of all callers together."""


class ServedElections:
    """Holds elections on requests, each day in a run of its own.

    Args:
        endpoint: its models and settings.
        caps: bound the cost of all samples.

    Raises:
        InvalidUsage: a model speaks none of the wires, or is refused.
    """

    def __init__(self, endpoint: Endpoint, caps: Caps) -> None:
        models, fallbacks = tuple(endpoint.models), tuple(endpoint.fallbacks)
        self._providers = {spec: _provider_of(spec, endpoint.settings) for spec in (*models, *fallbacks)}
        self._models: dict[str, tuple[str, ...]] = {}
        """The pool of the wires of each SDK."""
        for spec in models:
            sdk = self._providers[spec].sdk
            self._models[sdk] = (*self._models.get(sdk, ()), spec)
        unpriced = [spec for spec, each in self._providers.items() if not each.priced]
        if caps.are_set and unpriced:
            raise InvalidUsage(
                f"the price of {unpriced[0]!r} is unknown, so no cap can be kept; give it in the spec, "
                "@price_in=...,price_out=..., or in a file, --prices FILE"
            )
        if fallbacks and len({each.sdk for each in self._providers.values()}) > 1:
            raise InvalidUsage("a fallback gets requests as they came, so it and all models must speak the same wires")
        self._endpoint = endpoint
        self._caps = caps
        pools, outage_s = {"": models}, OUTAGE_S
        if fallbacks:
            pools, outage_s = {"": models, "fallback": fallbacks}, OUTAGE_S + OUT_AFTER_S
        self._settings = {**endpoint.settings, "models": pools, "max_outage_s": outage_s, "resend_stragglers": False}
        self._numbers = count(1)
        self._turn = asyncio.Lock()
        self._scope = TaskScope()
        self._run: DayRun

    async def begin(self) -> None:
        """Begin the first run."""
        self._run = self._run_of(today(), self._endpoint.run_id)
        await self._run.begin()

    async def close(self) -> None:
        """End the runs, whose elections have ended."""
        try:
            await self._run.end()
            await self._scope.join()
        finally:
            for provider in self._providers.values():
                await provider.close()

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
        answer = await provider.forward(asked.behind(path), asked.body(provider.model), asked.headers)
        if isinstance(answer, ModelUnavailable):
            raise answer
        return answer

    async def hold(self, exchange: Exchange) -> ElectedReply:
        """Elect the reply to a request.

        Raises:
            MicroagentsError: a sample has no reply, or the reply is withheld.
        """
        async with self._turn:
            day = today()
            if self._run.day != day:
                self._scope.start(self._run.end())
                self._run = self._run_of(day, f"{self._endpoint.run_id}-{day}")
                await self._run.begin()
            run, number = self._run, next(self._numbers)
            path = f"0/request/{number}"
            run.open[path] = exchange
        try:
            return await self._held(run, path, number)
        finally:
            del run.open[path]
            run.changed.notify()

    async def _held(self, run: DayRun, path: str, number: int) -> ElectedReply:
        exchange, messenger = run.open[path], run.runtime.messenger
        asked, policy = exchange.asked, exchange.policy
        pool = self._models[asked.wire.sdk]
        is_settled = asked.is_plain and not asked.has_form and policy.votes == "end"
        voting = policy.rule(self._endpoint.k, is_settled=is_settled)
        rule: PortableRule = voting
        if all(run.models[spec].law_of(exchange) for spec in pool):
            rule = certain(voting, branches=False)
        question = Question(
            prompts=(Prompt(user=asked.digest.hex()),),
            reply=_ACTS,
            form=fingerprint(Acts),
            rule=rule,
            sampling=Sampling(max_output_tokens=exchange.cap, flag_above_tokens=None),
            models=pool,
            max_draws=voting.most,
            prose=policy.unvoted,
        )
        election = question.id_at(path)
        if policy.keep_bodies:
            place = ElectionId(path=f"{path}/body", question_digest=asked.digest)
            body = json.encode(asked.whole.decode(errors="replace"))
            messenger.tell(Record.of(answered(place, body)))
        try:
            verdict = await messenger.ask(Elect(id=election, question=question))
        except ModelUnavailable:
            if exchange.over_cap is None:
                raise
            if 0 not in exchange.replies:
                raise exchange.over_cap from None
            verdict = _led(election, question, exchange)
        run.done += 1
        messenger.tell(Record.of(RecordProgress(input=0, done=run.done, total=None)))
        await run.record(RecordDecision(id=election, verdict=verdict, reply=_ACTS))
        if verdict.winner is None:
            raise exchange.failure or Undecided(path, len(verdict.ballots), "no reply")
        first = next(each.seq for each in verdict.ballots if isinstance(each, Ballot) and each.value == verdict.winner)
        elected = ElectedReply(number=number, verdict=verdict, reply=exchange.replies[first], exchange=exchange)
        elected.check()
        for index, call in enumerate(elected.acts.calls):
            if policy.of(call.tool).approve:
                await run.approve(f"{path}/call/{index}/approval", call.tool)
        return elected

    def _run_of(self, day: str, run_id: str) -> DayRun:
        """Build the run of a day."""
        exchanges: dict[str, Exchange] = {}
        models = {spec: ForwardingModel(each, exchanges, self._caps) for spec, each in self._providers.items()}
        plan = RunPlan(
            tasks=[Requests()],
            listed=False,
            strategy=Voted(k=self._endpoint.k, certain="on"),
            settings=validated(Settings, "the endpoint", {**self._settings, "run_id": run_id}),
            model_objects=models,
        )
        experiment, own = experiment_of(plan)
        runs_dir = self._endpoint.runs_dir
        journal = None if runs_dir is None else journal_of(runs_dir, run_id)
        journaling = JournalConfig(path=journal, experiment=experiment, own=own, full=False)
        keeper = Deployment(role=Keeper, options={"journaling": journaling}, in_driver=True)
        runtime = LocalRuntime(plan.context(), deployments_of(plan, keeper))
        return DayRun(runtime=runtime, run_id=run_id, day=day, open=exchanges, models=models)


def _led(election: ElectionId, question: Question, exchange: Exchange) -> Verdict:
    """Return the verdict of the replies that the caps had room for."""
    count = Count(election, question)
    for seq in range(len(exchange.replies)):
        if seq in exchange.replies and not count.is_over:
            value = encode_reply(decoder_of(Acts).decode(exchange.replies[seq].acts))
            count.add(Ballot(seq=seq, value=value, cost_usd=exchange.replies[seq].usage.cost_usd))
    return count.verdict()


def _provider_of(spec: str, settings: Mapping[str, Any]) -> HttpModel:
    parsed = ModelSpec.parse(spec)
    if parsed.provider not in PROVIDERS:
        raise InvalidUsage(
            f"{spec!r} cannot be served: requests go on as they came, so its provider must speak their wire; give "
            "openai:NAME or anthropic:NAME, with @base_url=... for vLLM, llama.cpp, OpenRouter and others"
        )
    for option in OF_REQUESTS:
        if option in parsed.options:
            raise InvalidUsage(f"{option} in {spec!r} shapes requests, and these go on as they came; leave it out")
    parsed.options.setdefault("timeout_s", CALL_S)
    kind = MODELS.find(parsed.provider, Model)
    assert issubclass(kind, HttpModel)
    return kind(parsed, settings.get("prices", {}))


_ACTS = address_of(Acts)
