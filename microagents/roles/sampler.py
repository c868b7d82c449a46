"""Samples of one election: each is drawn from the solver, screened by the red-flagger, and may look things up before its reply."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from msgspec import structs

from microagents.actors.role import Role
from microagents.base.errors import MicroagentsError, ModelUnavailable
from microagents.elections.election import (
    AnyBallot,
    Draw,
    ElectionId,
    Flagged,
    Question,
    SampleFacts,
    SampleId,
    Screen,
    Wanted,
)
from microagents.elections.red_flags import REFUSED
from microagents.elections.rules import ByField, Certain
from microagents.replies.chat import Prompt, Sample
from microagents.replies.turns import ToolCall, Turn
from microagents.roles.executor import LOOKED_UP, Execute
from microagents.roles.known_models import KnownModels
from microagents.task import flags_by_state
from microagents.telemetry.tracing import ElectionTrace
from microagents.tools.effect_keys import effect_key
from microagents.tools.observations import MAX_OBSERVATION_CHARS

Screened = tuple[Sample, AnyBallot | Wanted]
"""A sample, and what it counts as."""
LOOK_UP_S = 60.0
"""Time after which a call before a reply is given up."""


class Sampler:
    """Draws and screens the samples of an election.

    Args:
        voter: the role that asks for them.
        election_id: the election.
        question: its question.
        known: facts about the models of the run.
        fewest: number of samples that decide it if all agree.
        is_followed: whether the first ballot is waited for, to guess on.
        trace: notes its calls; None if the run is not traced.
    """

    def __init__(
        self,
        voter: Role,
        election_id: ElectionId,
        question: Question,
        *,
        known: KnownModels,
        fewest: int,
        is_followed: bool,
        trace: ElectionTrace | None = None,
    ) -> None:
        self._voter = voter
        self.run_id = voter.context.run_id
        self.election_id = election_id
        self.question = question
        self._known, self._fewest, self._is_followed = known, fewest, is_followed
        self._trace = trace
        self._traceparent = "" if trace is None else trace.traceparent
        self.is_over = False
        """Whether no more ballots are counted. Set by the election: a callback of it would be a cycle of references."""
        self.task = voter.context.task_of(election_id.input, question.handed)
        self._state = question.state if flags_by_state(type(self.task)) else b""
        self._drawn: dict[int, tuple[float, Sample | MicroagentsError]] = {}
        """Samples that were drawn together and are not taken yet, or the failure of their request, by seq; with the time of the request."""

    def prompt(self, seq: int) -> Prompt:
        """Return the prompt of a sample."""
        return self.question.prompt_of(seq)

    def alike(self, seqs: range) -> range:
        """Return the first of these seqs that can be drawn together: they have one model, temperature and prompt."""
        first = self.question.model_of(self.election_id, seqs[0])
        most = self._known.samples_at_once(first)
        if most == 1:
            return seqs[:1]
        like = self._like(seqs[0])
        unlike = (place for place, seq in enumerate(seqs[:most]) if self._like(seq) != like)
        return seqs[: next(unlike, most)]

    def _like(self, seq: int) -> tuple[object, ...]:
        """Return the properties that samples of one request share."""
        model = self.question.model_of(self.election_id, seq)
        temperature = self._known.temperature(model, self.question.sampling.temperature_of(seq))
        # A chain goes on with the first ballot, and a request for several samples takes as long as the slowest.
        is_first = self._is_followed and seq == 0
        return model, temperature, self.question.prompt_number(seq), is_first

    async def draw_together(self, seqs: range) -> int:
        """Draw samples in one request, for `sample` to take; returns how many, from the first one on, it gave or refused."""
        asked_s, request = self._asked_s(), self._draw(seqs[0], self.prompt(seqs[0]), samples=len(seqs))
        drawn: Sequence[Sample | MicroagentsError]
        try:
            samples = await self._voter.ask(request)
            drawn = samples
        except MicroagentsError as error:
            drawn = [error] * len(seqs)
        self._drawn.update((seq, (asked_s, each)) for seq, each in zip(seqs, drawn, strict=False))
        return len(drawn)

    async def sample(self, seq: int, prompt: Prompt, earlier: int = 0) -> Screened | None:
        """Draw one sample and screen it; None once the election counts no more.

        Args:
            seq: its place in the order of launches.
            prompt: the question.
            earlier: number of earlier replies that were not taken; the prompt has them.
        """
        question, draw, trace = self.question, self._draw(seq, prompt, earlier), self._trace
        asked_s, given = self._drawn.pop(seq, (self._asked_s(), None))
        try:
            if given is None:
                sample = (await self._voter.ask(draw))[0]
            elif isinstance(given, MicroagentsError):
                raise given
            else:
                sample = given
        except ModelUnavailable as error:
            if not error.is_of_content:
                raise
            said = error.words
            return Sample(text=said, model=draw.model), Flagged(
                seq=seq, flag=REFUSED, cost_usd=0.0, facts=SampleFacts(said=said)
            )
        if self.is_over:
            return None
        if sample.mass is not None and not draw.needs_mass:
            sample = structs.replace(sample, mass=None)
        ballot = await self._voter.ask(
            Screen(
                id=draw.id,
                sample=sample,
                reply=question.reply,
                flag_above_tokens=question.sampling.flag_above_tokens,
                choices=question.choices,
                reading=question.reading,
                state=self._state,
                handed=question.handed,
            )
        )
        if trace is not None:
            seen = None if isinstance(ballot, Wanted) else ballot
            trace.calls.append((seq, draw.model, draw.temperature, prompt, sample, seen, asked_s, trace.clock()))
        return sample, ballot

    def _draw(self, seq: int, prompt: Prompt, earlier: int = 0, *, samples: int = 1) -> Draw:
        question, model = self.question, self.question.model_of(self.election_id, seq)
        temperature = question.sampling.temperature_of(seq + earlier)  # asked again at 0, a model repeats itself
        return Draw(
            id=SampleId(election=self.election_id, seq=seq),
            samples=samples,
            is_shared=not earlier and samples < self._fewest,
            prompt=prompt,
            reply=question.reply,
            temperature=temperature,
            max_output_tokens=question.sampling.max_output_tokens,
            needs_length=bool(question.sampling.flag_above_tokens),
            needs_mass=not earlier and self._may_decide(temperature) and not self._known.is_doubted(model),
            model=model,
            substitute=question.model_of(self.election_id, seq + 1),
            rejected=earlier,
            choices=question.choices,
            handed=question.handed,
            traceparent=self._traceparent,
        )

    def _asked_s(self) -> float:
        """Time of a request, by the clock of the trace; 0 without one."""
        if self._trace is None or not self._traceparent:
            return 0.0
        return self._trace.clock()

    def _may_decide(self, temperature: float | None) -> bool:
        """Whether the mass of a draw at a temperature may decide: all draws have one law, or the text above one half is its likeliest."""
        sampling, rule = self.question.sampling, self.question.rule
        if isinstance(rule, ByField):
            rule = rule.rule
        is_wanted = isinstance(rule, Certain) or self._voter.context.strategy.measures_masses
        if not is_wanted or sampling.temperature is None or sampling.temperature > 1:
            return False
        return temperature in (0, sampling.temperature)

    async def look_up(self, call: ToolCall) -> Turn:
        """Make a call before a reply, and return its result; equal ones of an input are made once."""
        of_input = self.election_id.input
        key = blake2b(call.key_text().encode(), digest_size=16)
        at = f"{LOOKED_UP}/{key.hexdigest()}"
        made = await self._voter.ask(
            Execute(
                at=at,
                input=of_input,
                tool=call.tool,
                arguments=call.arguments,
                key=effect_key(self.run_id, f"{of_input}/{at}", call.tool, call.arguments),
                most_chars=MAX_OBSERVATION_CHARS,
                timeout_s=LOOK_UP_S,
                is_kept=True,
            )
        )
        outcome = "error" if made.outcome == "unknown" else made.outcome
        return Turn(role="tool", outcome=outcome, text=made.text, files=made.files)
