"""Models of OpenAI, and of every server with its chat completions API: vLLM, Ollama, llama.cpp and others."""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from msgspec import structs

from microagents.base.errors import InvalidUsage
from microagents.base.named_values import stated
from microagents.base.text_digests import digest_of
from microagents.models.capabilities import capabilities_of
from microagents.models.http.batch_wires import OpenAIFiles
from microagents.models.http.histories import chat_messages
from microagents.models.http.media_parts import CHAT
from microagents.models.http.provider import HttpModel
from microagents.models.http.replies import ChatChoice, Said, choices_in, name_in
from microagents.models.http.sending import Body, Client, Parameters, Response, Sender, headers_of
from microagents.models.http.spec_options import flag
from microagents.models.json_schema import schema_name, strict_schema
from microagents.models.model import MAX_SAMPLES, SEVERAL, SEVERAL_AT_ONCE, samples_per_request
from microagents.models.prices import NO_PRICES, UserPrices
from microagents.models.token_masses import ALTERNATIVES, Token, mass_of, tokens_in
from microagents.models.weighing import LETTERS, LOGPROBS, by_letter, weighed_by_letter
from microagents.replies.chat import Sample

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from microagents.elections.sample_batches import BatchKind
    from microagents.models.http.batch_client import BatchTerms
    from microagents.models.http.batch_wires import BatchWire
    from microagents.models.http.native_calls import NativeCall
    from microagents.models.model import Call, ModelSpec
    from microagents.replies.chat import Prompt, Usage
    from microagents.replies.masses import LawOfMass


SESSION, BY_PROMPT = "x-session-id", "prompt"
"""The header by which the routers of Ray Serve LLM choose a replica, and what it names."""
MAX_STEPS = 2**20
"""Steps of an input that have a priority of their own."""
CACHING: dict[str, str | None] = {"prompt_cache_key": None, "prompt_cache_options": None}
"""Parameters of caching. Servers that do not know them may refuse them."""
SAMPLERS_OFF = {"top_k": 0, "top_p": 1, "min_p": 0}
"""Parameters with which a sample at temperature 1 follows the model's own law."""
RAW, PROCESSED, OFF = "raw", "processed", "off"
NO_CHOICE = "the reply has no choice"
"""Stands for the words of a server that filters a whole reply."""


class OpenAIWire(HttpModel):
    """A model behind one of OpenAI's APIs.

    With a ``base_url`` and no key, the key ``none`` is sent: local servers need none.

    ``logprobs`` tells the kind of the tokens' log-probabilities: ``raw``, the model's own before temperature and samplers (the default);
    ``processed``, of the law that tokens are drawn from; ``off``, of no use.
    """

    sdk = "openai"
    url = "https://api.openai.com/v1"
    url_env = "OPENAI_BASE_URL"
    key_env = "OPENAI_API_KEY"
    batch_kinds: ClassVar[tuple[BatchKind, ...]] = ("file",)
    workspace_env = ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID")
    form = CHAT
    more_options: ClassVar[tuple[str, ...]] = (LOGPROBS,)
    mass_parameters: ClassVar[Mapping[str, Any]] = {}
    """Parameters that ask for the log-probabilities of tokens; none if the API has none."""

    def __init__(self, spec: ModelSpec, prices: UserPrices = NO_PRICES) -> None:
        super().__init__(spec, prices)
        self.kind_of_logprobs = self._options.get(LOGPROBS, RAW)
        if self.kind_of_logprobs not in (RAW, PROCESSED, OFF):
            raise InvalidUsage(f"{LOGPROBS}={self.kind_of_logprobs!r} is not {RAW}, {PROCESSED} or {OFF}")
        if not self.capabilities.takes(self.capabilities.logprobs, self._effort):
            self.kind_of_logprobs = OFF
        has_end = self.capabilities.lists_end or self._has_schema
        takes = self.kind_of_logprobs != OFF
        self.gives_masses = bool(self.mass_parameters) and "ballots" not in spec.options and takes and has_end
        """Whether it can give the probability of a whole reply, as far as is known before it is asked."""
        if self.gives_masses:
            self._substitutes.leave_out((*self.mass_parameters, *SAMPLERS_OFF))

    def _for_mass(self, call: Call) -> Parameters:
        """Return the parameters of a call that needs a mass, and can have one; else none."""
        law = self._law_of_masses(call)
        is_exact = law == "draw" and self.kind_of_logprobs == RAW and not self._is_own_address
        if law is None:
            return {}
        return {**self.mass_parameters, **(SAMPLERS_OFF if is_exact else {})}

    def _law_of_masses(self, call: Call) -> LawOfMass | None:
        """Return the law of the mass of a call; None if it needs none, or if the log-probabilities say nothing of the draw."""
        refused, cold = self._substitutes.refused, call.temperature
        # Several choices of a request may come from another state of the server than their numbers (llama.cpp beside a second client).
        can_have = self.gives_masses and call.needs_mass and call.samples == 1 and not call.prompt.tools
        if not can_have or not refused.keys().isdisjoint(self.mass_parameters):
            return None
        is_exact = cold == 1 and not self._has_schema and "temperature" not in refused
        if is_exact and self.kind_of_logprobs == RAW and refused.keys().isdisjoint(SAMPLERS_OFF):
            return "draw"
        return self.law_at(cold)

    def law_at(self, temperature: float | None) -> LawOfMass | None:
        """Return the law of the masses of replies at a temperature; None if the log-probabilities say nothing of the draw."""
        if temperature is None or self.kind_of_logprobs == OFF:
            return None
        if self.kind_of_logprobs == PROCESSED:
            return "draw" if temperature else None  # at 0 they are no law's
        if temperature > 1 or "temperature" in self._substitutes.refused:
            return None
        return "model"

    def _with_mass(self, sample: Sample, call: Call, tokens: Sequence[Token]) -> Sample:
        """Add the probability of the whole reply; none with reasoning before it, which may be any, or with tokens that are not listed."""
        law, usage = self._law_of_masses(call), sample.usage
        written = usage.output_tokens or 0 if call.samples == 1 else 0  # of one among several it is a guess
        if law is None or usage.reasoning_tokens != 0 or written > len(tokens) + 1 or sample.finish != "stop":
            return sample
        is_closed = self._has_schema and not self.capabilities.lists_end
        return structs.replace(sample, mass=mass_of(tokens, sample.text, law=law, is_closed=is_closed))

    def _batch_wire(self, sender: Sender, terms: BatchTerms) -> BatchWire:  # noqa: ARG002 - for windows
        return OpenAIFiles(sender, self.path, self._redaction)

    def _connect(self) -> Client:
        from openai import AsyncOpenAI  # noqa: PLC0415 - costs 0.5 s

        return Sender(self.base_url, headers_of(AsyncOpenAI, self._key, self.base_url))

    def _parameters(self, call: Call) -> Parameters:
        parameters: Parameters = {
            "temperature": call.temperature,
            self.effort_name: self._effort,
            "service_tier": self._options.get("service_tier"),
        }
        if self.capabilities.cache_floor is not None:
            # All samples of a question, and the steps of a conversation, go where their prefix is; other inputs may go elsewhere.
            is_apart = self._cache_key is not None and call.prompt.turns
            parameters["prompt_cache_key"] = (
                f"{self._cache_key}/{call.id.election.input}" if is_apart else self._cache_key
            )
        # Else the changing part is written into the cache, too, for a higher price; the next step of a conversation reads it.
        if not self.caches.takes_whole(call.prompt):
            parameters["prompt_cache_options"] = {"mode": "explicit"}
        return stated(parameters) | self._for_mass(call)

    def _messages(self, prompt: Prompt, contents: Mapping[str, bytes]) -> list[dict[str, Any]]:
        """Write a prompt as messages of parts; the last constant text ends the cached prefix."""
        mark, has_static = {"prompt_cache_breakpoint": {"mode": "explicit"}}, prompt.static_chars > 0
        user = self.form.content(prompt.user_parts, prompt.files, contents, mark if has_static else {})
        messages = [{"role": "user", "content": user}]
        if prompt.system:
            part = {"type": self.form.text, "text": prompt.system, **({} if has_static else mark)}
            messages.insert(0, {"role": "system", "content": [part]})
        return messages


def priority_of(path: str) -> int:
    """Compute the place of a call in vLLM's queue, lowest first: by input, then by step."""
    of_input, step = ([int(part) for part in path.split("/") if part.isdecimal()] + [0, 0])[:2]
    return of_input * MAX_STEPS + min(step, MAX_STEPS - 1)


class OpenAIModel(OpenAIWire):
    """A model behind OpenAI's chat completions API.

    The cap on output is sent as ``max_completion_tokens`` to OpenAI itself and to the models of the table of capabilities. All
    other addresses get ``max_tokens``: a server that does not know the newer name may ignore it and set no cap. A server that
    refuses one name gets the other.

    With ``priority=true`` each request carries its place in the queue, which vLLM uses if its scheduler is ``priority``.

    With ``session=prompt`` each request names its prompt in a header, by which routers send all votes on it to one replica.

    With ``ballots=logprobs`` the model writes the letter of an option, and the log-probabilities of the letters weigh the options.
    """

    path = "/chat/completions"
    more_options: ClassVar[tuple[str, ...]] = (
        *OpenAIWire.more_options,
        "ballots",
        "at_least",
        "priority",
        "session",
        SEVERAL,
    )
    mass_parameters: ClassVar = {"logprobs": True, "top_logprobs": ALTERNATIVES}
    effort_name = "reasoning_effort"
    streamed: ClassVar = {"stream": True, "stream_options": {"include_usage": True}}
    substitutes: ClassVar = {
        "temperature": None,
        "reasoning_effort": None,
        "max_tokens": "max_completion_tokens",
        "max_completion_tokens": "max_tokens",
        **CACHING,
        SEVERAL_AT_ONCE: None,
    }

    def __init__(self, spec: ModelSpec, prices: UserPrices = NO_PRICES) -> None:
        super().__init__(spec, prices)
        if spec.options.get("session", BY_PROMPT) != BY_PROMPT:
            raise InvalidUsage(
                f"session={spec.options['session']!r} is not known; the only session is session={BY_PROMPT}"
            )
        self.max_samples = self.most_samples(spec)

    @classmethod
    def most_samples(cls, spec: ModelSpec) -> int:
        """Return the number of choices that a request asks for, one if they are weighed.

        Raises:
            InvalidUsage: the option of the spec is not a number from 1 on.
        """
        most = capabilities_of(spec.provider, spec.name).max_choices
        asked = samples_per_request(spec.options, most or MAX_SAMPLES, "auto" if most else "1")
        if spec.options.get("ballots") == LOGPROBS:
            return 1
        return asked

    async def complete_several(self, call: Call) -> Sequence[Sample]:
        """Take several samples in one request. Once a server gives fewer than asked for, they are asked for singly."""
        samples = await self._take(call)
        if len(samples) < call.samples:
            self._substitutes.refused.setdefault(SEVERAL_AT_ONCE, None)
        return samples

    @property
    def takes_turns(self) -> bool:  # type: ignore[override]  # as the model's
        """Whether it takes the turns and the tools of prompts; not while it weighs options."""
        return super().takes_turns and not self._weighs

    @property
    def _weighs(self) -> bool:
        return self._options.get("ballots") == LOGPROBS

    def _checked_effort(self) -> str | None:
        if not self._weighs:
            if "ballots" in self._options or "at_least" in self._options:
                raise InvalidUsage(
                    f"{self.name} weighs options only with ballots={LOGPROBS}, and at_least goes with it"
                )
            return super()._checked_effort()
        efforts = self.capabilities.efforts or ()
        if "effort" in self._options or "none" not in efforts:
            effort = super()._checked_effort()
        else:
            effort = "none"
        if not self.capabilities.takes(self.capabilities.logprobs, effort):
            if "none" in efforts:
                hint = "; it does with effort=none"
            else:
                hint = "; openai-decisions:gpt-6-luna weighs options, too"
            raise InvalidUsage(f"{self.name} gives no log-probabilities while it reasons{hint}")
        return effort

    def _parameters(self, call: Call) -> Parameters:
        parameters = {**super()._parameters(call), self._cap_name(): call.max_output_tokens}
        if flag(self._options, "priority"):
            parameters["priority"] = priority_of(call.id.election.path)
        if self._weighs:
            parameters.pop("temperature", None)
            return {**parameters, self._cap_name(): 1, "logprobs": True, "top_logprobs": len(LETTERS)}
        if self._constrains(call):
            named = {"name": schema_name(call.reply), "schema": strict_schema(call.reply), "strict": True}
            parameters["response_format"] = {"type": "json_schema", "json_schema": named}
        if call.samples > 1:
            parameters[SEVERAL_AT_ONCE] = call.samples
        return parameters

    def _headers(self, call: Call) -> dict[str, str]:
        if "session" not in self._options:
            return {}
        text = f"{call.prompt.system}\0{call.prompt.user}".encode(errors="replace")
        return {SESSION: digest_of(text).hex()}

    async def served_metrics(self) -> bytes | None:
        """Return the metrics that the server of a model has for Prometheus, as vLLM has; None without any. The key is not sent."""
        if self._is_own_address:
            return None
        sender = Sender(self.base_url.partition("?")[0].removesuffix("/v1"), {})
        try:
            answer = await sender.get("/metrics")
        finally:
            await sender.close()
        if isinstance(answer, Response) and answer.is_success:
            return answer.content
        return None

    def _content(self, call: Call, parameters: Parameters) -> Body:
        prompt, history = self._opened(by_letter(call) if self._weighs else call.prompt, call.contents)
        if "prompt_cache_options" in parameters and self.caches.takes_static(prompt):
            messages = self._messages(prompt, call.contents)
        else:
            user = self.form.content(prompt.user_parts, prompt.files, call.contents)
            texts = (("system", prompt.system), ("user", user))
            messages = [{"role": role, "content": text} for role, text in texts if text or role == "user"]
        content = {"model": self.model, "messages": [*messages, *chat_messages(history)]}
        if prompt.tools:
            content["tools"] = [
                {"type": "function", "function": {"name": name, "description": said, "parameters": schema}}
                for name, said, schema in history.tools.described
            ]
        return content

    def _items(self, said: Said, calls: Sequence[NativeCall]) -> dict[str, Any] | None:
        extras = [each.extra for each in calls]
        if not said.extras and not any(extras):
            return None
        return {"content": said.text, **said.extras, "extra_content": extras}

    def _cap_name(self) -> str:
        is_openai = urlsplit(self.base_url).hostname == "api.openai.com"
        return self.capabilities.max_tokens_name or ("max_completion_tokens" if is_openai else "max_tokens")

    def _read(self, reply: Body, call: Call) -> Sample:
        return self._read_all(reply, call)[0]

    def _read_all(self, reply: Body, call: Call) -> Sequence[Sample]:
        choices = choices_in(reply.get("choices"))
        if reply.get("choices", True) in (None, []) and (reply.get("usage") or reply.get("id")):
            choices = [ChatChoice(index=0, said=Said(refusal=NO_CHOICE), reason="content_filter")]
        if not any(each.reason or each.said for each in choices):
            raise ValueError("Expected choices with a text")
        kept = sorted(choices, key=lambda choice: choice.index)[: call.samples]
        usage = self.meter.usage(reply, has_reasoning=any(each.said.has_reasoning for each in kept))
        usages = [usage]
        if len(kept) > 1:
            served = name_in(reply.get("service_tier")) or None
            lengths = [len(each.said.text or each.said.refusal) for each in kept]
            usages = self.meter.split(usage, lengths, served)
        return [self._sample_of(choice, each, call) for choice, each in zip(kept, usages, strict=True)]

    def _sample_of(self, choice: ChatChoice, usage: Usage, call: Call) -> Sample:
        sample = self._samples.sample(choice.said, choice.reason, usage, call)
        if not (self._weighs or call.needs_mass) or sample.finish not in ("stop", "length"):
            return sample
        tokens = tokens_in(choice.logprobs)
        if not self._weighs:
            return self._with_mass(sample, call, tokens)
        top = (tokens[0].top_logprobs if tokens else None) or ()
        found = {each.token: exp(min(0.0, each.logprob)) for each in top if each.logprob is not None}
        return weighed_by_letter(call, found, structs.replace(sample, finish="stop"))
