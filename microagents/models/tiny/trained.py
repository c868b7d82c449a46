"""A trained model of one kind of step, such as ``tiny:hanoi``: it knows nothing but the text of the prompt, and errs on its own.

Every reply is a function of the run's seed, the model's name, the text of the prompt, the path of the election, and the number of the draw.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b, sha256
from itertools import accumulate
from math import exp, inf, log, nan
from operator import add, itemgetter
from pathlib import Path
from random import Random
from typing import Self

import msgspec
import numpy as np
from msgspec import Struct

from microagents.actors.registry import unknown
from microagents.actors.role import Context
from microagents.base.aio import TaskScope
from microagents.base.errors import InvalidUsage, refusing
from microagents.base.text_digests import digest_of
from microagents.models.model import Call, Model, ModelSpec, Most
from microagents.models.tiny.transformer import Floats, Memory, Transformer, log_softmax
from microagents.models.tiny.vocabulary import PROVIDER, STOP, VOCABULARIES, Unreadable, Vocabulary
from microagents.replies.chat import Prompt, Sample, Usage
from microagents.replies.masses import Mass, digest_of_text

WEIGHTS = Path(__file__).parent / "weights"
NAMES = tuple(VOCABULARIES)
UNREAD = "I cannot read this."
"""Reply to a prompt that the model was not trained on: it has no form, so it gets a red flag."""
MAX_TEMPERATURE = 2.0
MAX_ROWS = 64
"""Greatest number of replies that are written side by side, which bounds how long the event loop waits for one token of each."""
MAX_REMEMBERED = 256
"""Number of prompts that are kept as keys and values: every question is asked several times."""


class Card(Struct, frozen=True, kw_only=True):
    """Facts beside the weights: how they came to be, and how often the model errs."""

    sha256: str
    """Digest of the file of weights."""
    trained_on: str
    seed: int
    updates: int
    batch: int
    wrong: dict[str, tuple[float, float, float]]
    """By size: the mean probability, over all states, that one sample at temperature 1 is wrong; and the least and the greatest one with
    which training ends, on any machine."""
    mostly_wrong: dict[str, list[int]]
    """By size: the numbers of the steps whose likeliest reply is wrong."""


class Drawn(Struct, frozen=True, kw_only=True):
    """One reply, token by token."""

    tokens: list[int]
    """The last one is the stop, unless the reply was cut off."""
    logprobs: list[float]
    """Log-probability of each token, at the temperature of the draw."""
    logprobs_at_1: list[float]
    """The same at temperature 1."""
    others: list[float]
    """Log-probability of the likeliest other token at each place, of a call that wants its mass: as `logprobs`, at temperature 0 at 1."""


class _Wanted(Struct, eq=False):
    """A draw that is under way."""

    call: Call
    temperature: float | None
    prompt: list[int]
    chance: Random
    drawn: asyncio.Future[Drawn]
    reply: Drawn

    @property
    def is_complete(self) -> bool:
        """Whether its reply has its stop, or all tokens that it may have."""
        return self.reply.tokens[-1] == STOP or len(self.reply.tokens) >= self.call.max_output_tokens

    def end(self) -> None:
        """Give the reply to the draw, unless that is cancelled."""
        if not self.drawn.done():
            self.drawn.set_result(self.reply)


class TinyModel(Model):
    """Model ``tiny:NAME[@temperature=T]``.

    Args:
        name: a name in `NAMES`.
        seed: the seed of the run.
        temperature: the temperature of all draws; None for the one that each call asks for.

    Raises:
        InvalidUsage: there is no such model, or its weights are damaged.
    """

    throttled_as = None
    priced = True  # it is free

    def __init__(self, name: str, seed: int = 0, temperature: float | None = None) -> None:
        self.name = f"{PROVIDER}:{name}"
        self.card, self._network = weights_of(name)
        self.vocabulary: Vocabulary = VOCABULARIES[name]
        self._temperature = temperature
        self._key = digest_of(f"{seed} {name}", 32)
        self._remembered: OrderedDict[tuple[int, ...], tuple[Memory, Floats]] = OrderedDict()
        self._waiting: list[_Wanted] = []
        self._scope = TaskScope()
        self._is_writing = False

    @classmethod
    def open(cls, spec: ModelSpec, context: Context) -> Self:
        """Open a model for the tasks of a run.

        Raises:
            InvalidUsage: it was not trained on the first question of one of them, or an option is unknown.
        """
        asked, others = spec.options.get("temperature"), {*spec.options} - {"temperature"}
        try:
            temperature = None if asked is None else float(asked)
        except ValueError:
            temperature = nan
        if others or not (temperature is None or 0 <= temperature <= MAX_TEMPERATURE):
            given = ", ".join(f"{key}={value}" for key, value in spec.options.items())
            raise InvalidUsage(
                f"a trained model has one option, temperature, from 0 to {MAX_TEMPERATURE:g}, not {given}"
            )
        model = cls(spec.name, context.seed, temperature)
        for task in context.tasks:
            first = task.first_prompt()
            try:
                if first is not None:
                    model.vocabulary.read(first)
            except Unreadable as error:
                raise InvalidUsage(
                    f"{model.name} cannot read the questions of {type(task).__name__} with these options: {error}; it was trained on "
                    f"{model.card.trained_on}"
                ) from None
        return model

    def at_most(self, call: Call) -> Most:
        """Bound the usage of a call."""
        return Most(tokens=self.vocabulary.prompt_slots + call.samples * self.vocabulary.reply_slots, cost_usd=0.0)

    async def complete(self, call: Call) -> Sample:
        """Draw one reply."""
        try:
            prompt = self.vocabulary.read(call.prompt)
        except Unreadable:
            return Sample(text=UNREAD, usage=Usage(input_tokens=1, output_tokens=1, cost_usd=0.0), model=self.name)
        drawn = await self.draw(call, prompt)
        usage = Usage(input_tokens=len(prompt), output_tokens=len(drawn.tokens), cost_usd=0.0)
        finish = "stop" if drawn.tokens[-1] == STOP else "length"
        text = self.vocabulary.write(drawn.tokens)
        mass = self._mass_of(text, drawn, call) if call.needs_mass and finish == "stop" else None
        return Sample(text=text, finish=finish, usage=usage, model=self.name, mass=mass)

    def _mass_of(self, text: str, drawn: Drawn, call: Call) -> Mass:
        """Return the mass of a complete reply, exactly: by the law of its draw, or by that at temperature 1 if it was drawn at 0."""
        is_greedy = self._temperature_of(call) == 0
        logprobs = drawn.logprobs_at_1 if is_greedy else drawn.logprobs
        before = accumulate(logprobs, initial=0.0)
        branches = map(add, before, drawn.others)
        return Mass(
            log=min(0.0, sum(logprobs)),
            text=digest_of_text(text),
            law="model" if is_greedy else "draw",
            branch=max(branches),
        )

    def _temperature_of(self, call: Call) -> float | None:
        if self._temperature is None:
            return call.temperature
        return self._temperature

    async def draw(self, call: Call, prompt: list[int]) -> Drawn:
        """Draw one reply to a prompt that is read, together with all others that are wanted at this moment."""
        wanted = _Wanted(
            call=call,
            temperature=self._temperature_of(call),
            prompt=prompt,
            chance=self._chance(call),
            drawn=asyncio.get_running_loop().create_future(),
            reply=Drawn(tokens=[], logprobs=[], logprobs_at_1=[], others=[]),
        )
        self._waiting.append(wanted)
        if not self._is_writing:
            self._is_writing = True
            self._scope.start(self._write_all())
        return await wanted.drawn

    async def _write_all(self) -> None:
        now: list[_Wanted] = []
        try:
            while self._waiting:
                await asyncio.sleep(0)  # draws of this moment come together
                now, self._waiting = self._waiting[:MAX_ROWS], self._waiting[MAX_ROWS:]
                await self._write(now)
        finally:
            self._is_writing = False
            for each in now:  # if it was cut short
                each.drawn.cancel()

    async def _write(self, wanted: Sequence[_Wanted]) -> None:
        """Write replies side by side, one token of each after the other. Replies that are equal so far share a row."""
        by_prompt: dict[tuple[int, ...], list[_Wanted]] = {}
        for each in wanted:
            by_prompt.setdefault(tuple(each.prompt), []).append(each)
        groups = list(by_prompt.values())
        memory, logits = self._read(list(by_prompt))
        for slot in range(self.vocabulary.prompt_slots + 1, self._network.slots + 1):
            at_1 = log_softmax(logits)
            begun: dict[tuple[int, int], list[_Wanted]] = {}
            for row, group in enumerate(groups):
                for each in group:
                    logprobs = _at(at_1[row], each.temperature)
                    token, logprob = _chosen(logprobs, each.temperature, each.chance.random())
                    each.reply.tokens.append(token)
                    each.reply.logprobs.append(logprob)
                    each.reply.logprobs_at_1.append(float(at_1[row, token]))
                    if each.call.needs_mass:
                        each.reply.others.append(_likeliest_other(logprobs, token))
                    if each.is_complete or slot == self._network.slots:
                        each.end()
                    else:
                        begun.setdefault((row, token), []).append(each)
            if not begun:
                return
            await asyncio.sleep(0)  # in slices of one token: the event loop has other work
            rows, groups = [row for row, _ in begun], list(begun.values())
            if rows != list(range(len(memory.filled))):
                memory = memory.of(rows)
            logits = self._network.logits(np.array([[token] for _, token in begun]), slot, memory)[:, 0]

    def _read(self, prompts: Sequence[tuple[int, ...]]) -> tuple[Memory, Floats]:
        """Read prompts: their keys and values, and the logits of the first token of each reply."""
        found = []
        for prompt in prompts:
            read = self._remembered.get(prompt)
            if read is None:
                slots = self.vocabulary.prompt_slots
                ids, given = np.zeros((1, slots + 1), dtype=np.int64), np.zeros((1, slots + 1), dtype=bool)
                ids[0, : len(prompt) - 1], ids[0, slots] = prompt[:-1], prompt[-1]
                given[0, : len(prompt) - 1], given[0, slots] = True, True
                memory = self._network.empty(1)
                read = self._remembered[prompt] = memory, self._network.logits(ids, 0, memory, given)[:, -1]
                if len(self._remembered) > MAX_REMEMBERED:
                    self._remembered.popitem(last=False)
            found.append(read)
        memories, logits = zip(*found, strict=True)
        return Memory.joined(list(memories)), np.concatenate(logits)

    def _chance(self, call: Call) -> Random:
        place = f"{call.id.election.path}\0{call.id.seq}\0{call.rejected}\0{call.prompt.system}\0{call.prompt.user}"
        seed = blake2b(place.encode("utf-8", "surrogatepass"), digest_size=16, key=self._key)
        return Random(seed.digest())  # noqa: S311 - seeded

    def law(self, prompt: Prompt, temperature: float = 1.0, least: float = 1e-3) -> dict[str, float]:
        """List the replies to a prompt whose probability is at least a number above 0, likeliest first.

        Raises:
            Unreadable: the model cannot read the prompt.
        """
        memory, logits = self._read([tuple(self.vocabulary.read(prompt))])
        found: dict[str, float] = {}
        begun: list[tuple[list[int], float]] = [([], 0.0)]
        for slot in range(self.vocabulary.prompt_slots + 1, self._network.slots + 1):
            after = log_softmax(logits / temperature) + np.array([[logprob] for _, logprob in begun])
            likely = [(int(row), int(token)) for row, token in np.argwhere(after >= log(least))]
            for row, _ in (each for each in likely if each[1] == STOP):
                text = self.vocabulary.write(begun[row][0])
                found[text] = found.get(text, 0.0) + exp(after[row, STOP])
            likely = [each for each in likely if each[1] != STOP]
            if not likely or slot == self._network.slots:
                break
            begun = [([*begun[row][0], token], float(after[row, token])) for row, token in likely]
            memory = memory.of([row for row, _ in likely])
            logits = self._network.logits(np.array([[token] for _, token in likely]), slot, memory)[:, 0]
        return dict(sorted(found.items(), key=itemgetter(1), reverse=True))

    async def close(self) -> None:
        """Give up draws that are under way."""
        await self._scope.close()
        for each in self._waiting:
            each.drawn.cancel()


def _chosen(logprobs: Floats, temperature: float | None, chance: float) -> tuple[int, float]:
    """Choose a token by a uniform number; returns it and its log-probability. At temperature 0 the likeliest."""
    if temperature == 0:
        return int(logprobs.argmax()), 0.0
    below = np.exp(logprobs).cumsum()
    token = min(int(below.searchsorted(chance * below[-1], side="right")), len(below) - 1)
    return token, float(logprobs[token])


def _at(at_1: Floats, temperature: float | None) -> Floats:
    """Return the log-probabilities at a temperature; those at 1 for temperature 0, which has no law of its own."""
    if temperature not in (None, 0, 1):
        return log_softmax(at_1 / temperature)
    return at_1


def _likeliest_other(logprobs: Floats, token: int) -> float:
    """Return the log-probability of the likeliest token but the chosen one."""
    return float(max(logprobs[:token].max(initial=-inf), logprobs[token + 1 :].max(initial=-inf)))


@lru_cache
def weights_of(name: str) -> tuple[Card, Transformer]:
    """Load a model that ships with the package.

    Raises:
        InvalidUsage: there is none of this name, or its files are damaged.
    """
    if name not in VOCABULARIES:
        raise InvalidUsage(unknown("trained model called", name, NAMES))
    from safetensors.numpy import load  # noqa: PLC0415 - so that naming the models needs no package

    with refusing(f"the weights of {PROVIDER}:{name} cannot be read", "; install the package again"):
        card = msgspec.json.decode((WEIGHTS / f"{name}.json").read_bytes(), type=Card)
        weights = (WEIGHTS / f"{name}.safetensors").read_bytes()
    if sha256(weights).hexdigest() != card.sha256:
        raise InvalidUsage(
            f"the weights of {PROVIDER}:{name} are damaged: their digest is another one; install the package again"
        )
    return card, Transformer(load(weights))
