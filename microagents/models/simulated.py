"""A simulated model. The task's expert reads the prompt and gives the right reply; the model then makes errors on purpose.

It replaces a real model where no key is available, and in measurements, since its error rates are known. Every reply is a function of
the run's seed and the sample's id.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from difflib import get_close_matches
from hashlib import blake2b
from math import exp
from random import Random
from statistics import NormalDist
from types import NoneType
from typing import Any, Self

from msgspec import Struct, convert, structs

from microagents.actors import Context
from microagents.chat import Prompt, Reply, Sample, Usage, write
from microagents.elections.election import SampleId
from microagents.errors import InvalidUsage, ModelUnavailable
from microagents.models.model import Call, Model, ModelSpec
from microagents.parsing import Malformed, parse
from microagents.task import Task
from microagents.user_code import called


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Error rates, latency and prices of a simulated model. Every field is an option: ``sim:gpt-4.1-mini@error=0.01,latency=0.8``."""

    error: float
    """Share of wrong replies among the unflagged ones, at the provider's default temperature."""
    cool_error: float | None = None
    """The same share at temperatures up to 0.1, with a linear change from there up to 1; None: equal to ``error``."""
    flag: float = 0.0
    """Share of replies that get a red flag: half of them exceed the length limit, half break the format."""
    alternatives: int = 3
    """Number of different wrong replies to a question; 1 makes the two-way race of MAKER's scaling laws."""
    hard: float = 0.0
    """Share of questions on which one wrong reply is more likely than the right one."""
    latency: float = 0.0
    """Median time of a reply in seconds."""
    sigma: float = 0.5
    """Spread of the latency: the standard deviation of its logarithm."""
    hang: float = 0.0
    """Share of calls that give no reply, and fail after two minutes."""
    tokens: float = 400.0
    """Median length of a reply in output tokens."""
    price_in: float = 0.0
    """US dollars per million input tokens."""
    price_out: float = 0.0
    """US dollars per million output tokens."""


# Error rates: MAKER, figure 6 and section 4.3. Prices: those of the named models at that time, to estimate the cost of a run.
PROFILES = {
    "gpt-4.1-nano": Profile(error=0.3583, flag=0.02, price_in=0.1, price_out=0.4),
    "gpt-4.1-mini": Profile(error=0.0045, cool_error=0.0022, flag=0.004, price_in=0.4, price_out=1.6),
    "o3-mini": Profile(error=0.0017, flag=0.002, price_in=1.1, price_out=4.4),
    "perfect": Profile(error=0.0),
}

HARD_ERROR = 0.65
"""Error rate on a hard question. All its wrong replies are equal."""
RAMBLING_ERROR = 0.1
"""Error rate of replies that exceed the length limit (MAKER, figure 9a)."""
RAMBLING_TOKENS = (760, 2600)
"""Least and greatest length of such a reply, in output tokens."""
MAX_PLAIN_TOKENS = 700
HANG_S = 120.0
"""Duration after which a call that hangs fails, as one to a provider's server does."""
CHARS_PER_TOKEN = 4
MAX_CACHED_QUESTIONS = 4096
"""Limit of the cache of right replies: every question is asked several times."""

MAX_ALTERNATIVES = 1_000_000
_MAX_VALUES = {"latency": 86_400, "sigma": 5, "tokens": 1_000_000, "price_in": 1_000_000, "price_out": 1_000_000}
_NORMAL = NormalDist()
_REASONING = (
    "Let me go through this carefully. The question gives everything that is needed, so one pass over it should do. "
    "First I look at what is given, then at what the rule asks for, then I apply the rule once and check the outcome. "
    "Nothing else may change in this step, so the rest stays as it is. "
) * 60
_RAMBLING = "Wait, that may not be right. Let me start over and look at it once more from the beginning. " * 120


class Purchases:
    """A log of the calls to simulated models, as a provider would keep it: one line before a call and one before its reply.

    Tests count calls with it, independently of the journal under test.
    """

    VARIABLE = "MICROAGENTS_PURCHASES"
    """Environment variable with the path of the file; without it nothing is logged."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    @classmethod
    def named(cls) -> Purchases | None:
        """Open the file that the environment names; None if it names none."""
        path = os.environ.get(cls.VARIABLE)
        return None if not path else cls(path)

    def note(self, what: str, sample: SampleId) -> None:
        """Log that a call was ``sent`` or ``billed``."""
        # One write per line: a killed process leaves no partial lines.
        os.write(self._file, f"{what} {sample.election.path} {sample.election.question_digest.hex()} {sample.seq}\n".encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class SimulatedModel(Model):
    """The model ``sim:PROFILE[@field=value,...]``.

    Args:
        spec: a name of `PROFILES`, and fields of `Profile` to change.
        tasks: the task of each input; all have one class.
        seed: the seed of the run.

    Raises:
        InvalidUsage: the profile or an option is unknown, a value is out of range, or the task has no expert.
    """

    def __init__(self, spec: ModelSpec, tasks: Sequence[Task], seed: int) -> None:
        self.name = f"sim:{spec.name}"
        self.profile = _profile(spec)
        for task in tasks[:1]:  # all have one class
            if type(task).expert is Task.expert:
                raise InvalidUsage(
                    f"{type(task).__name__} has no `expert`, so the simulated model cannot know right replies; define the method, or "
                    "name a real model, such as --model openai:gpt-4.1-mini"
                )
        self._tasks = tasks
        self._key = blake2b(f"{seed}".encode(), digest_size=32).digest()
        self._purchases = Purchases.named()
        self._questions: OrderedDict[tuple[str, str, type[Reply], int], _Question] = OrderedDict()

    @classmethod
    def open(cls, spec: ModelSpec, context: Context) -> Self:
        """The model of a profile, for the tasks of the run."""
        return cls(spec, context.tasks, context.seed)

    @property
    def priced(self) -> bool:
        """True: a profile without prices is free."""
        return True

    @property
    def answers_at_once(self) -> bool:
        """Whether it has neither a latency nor hangs."""
        return not (self.profile.latency or self.profile.hang)

    def complete(self, call: Call) -> Coroutine[Any, Any, Sample]:
        """Return one sample, after its latency."""
        return self._draw(call) if self._purchases is None else self._draw_and_log(self._purchases, call)

    async def _draw_and_log(self, purchases: Purchases, call: Call) -> Sample:
        purchases.note("sent", call.id)
        sample = await self._draw(call)
        purchases.note("billed", call.id)
        return sample

    async def _draw(self, call: Call) -> Sample:
        chance = _Chance(self._key, call)
        if self.profile.hang and _hangs(self.profile.hang, self._key, call):
            await asyncio.sleep(HANG_S)
            raise ModelUnavailable("timeout", f"no complete reply within {HANG_S:g} s")
        if self.profile.latency > 0:
            await asyncio.sleep(self.profile.latency * exp(self.profile.sigma * _NORMAL.inv_cdf(chance.latency)))
        question = self._question(call)
        text, tokens = self._reply(call, question, chance)
        finish = "stop"
        if tokens > call.max_output_tokens:
            text, tokens, finish = text[: call.max_output_tokens * CHARS_PER_TOKEN], call.max_output_tokens, "length"
        cost = (question.input_tokens * self.profile.price_in + tokens * self.profile.price_out) / 1e6
        usage = Usage(input_tokens=question.input_tokens, output_tokens=tokens, cost_usd=cost)
        return Sample(text=text, finish=finish, usage=usage, model=self.name)

    async def close(self) -> None:
        """Close the log of calls."""
        if self._purchases is not None:
            self._purchases.close()
            self._purchases = None

    def _question(self, call: Call) -> _Question:
        # An expert reads the question alone. It need not know the form of feedback.
        prompt, of_input = call.first_prompt or call.prompt, call.id.election.input
        key = (prompt.user, prompt.system, call.reply, of_input)
        found = self._questions.get(key)
        if found is None:
            found = self._questions[key] = _Question(self._tasks[of_input], prompt, call.reply, self._key)
            if len(self._questions) > MAX_CACHED_QUESTIONS:
                self._questions.popitem(last=False)
        return found

    def _reply(self, call: Call, question: _Question, chance: _Chance) -> tuple[str, int]:
        """Text of a reply, and its length in tokens."""
        profile = self.profile
        if chance.flag < profile.flag / 2:
            low, high = RAMBLING_TOKENS
            answer = question.wrong(self._alternative(chance)) if chance.error < RAMBLING_ERROR else question.right_text
            return _pad(answer, int(low + (high - low) * chance.length), _RAMBLING)
        hard = question.hardness < profile.hard
        rate = HARD_ERROR if hard else self._error_rate(question, call.temperature)
        wrong = 0 if hard else self._alternative(chance)
        answer = question.wrong(wrong) if chance.error < rate else question.right_text
        if chance.flag < profile.flag:
            answer = question.broken(answer, int(chance.alternative * len(_FORMAT_BREAKS)))
        if not answer:
            return "", 0
        tokens = profile.tokens * exp(0.2 * _NORMAL.inv_cdf(chance.length))
        return _pad(answer, int(min(tokens, MAX_PLAIN_TOKENS)), _REASONING)

    def _error_rate(self, question: _Question, temperature: float | None) -> float:
        if question.difficulty is not None:
            return question.difficulty
        warm, cool = self.profile.error, self.profile.cool_error
        if cool is None or temperature is None or temperature >= 1:
            return warm
        return cool + (warm - cool) * max(0.0, (temperature - 0.1) / 0.9)

    def _alternative(self, chance: _Chance) -> int:
        return int(chance.alternative * self.profile.alternatives)


class _Question:
    """The right and wrong replies to one prompt, computed once and the same for every sample."""

    def __init__(self, task: Task, prompt: Prompt, reply: type[Reply], key: bytes) -> None:
        self._task = task
        self._prompt = prompt
        self._digest = blake2b(f"{prompt.system}\0{prompt.user}".encode("utf-8", "surrogatepass"), digest_size=16, key=key).digest()
        self._right: Reply = called(task.expert, prompt, reply, gives=reply)
        self._reply = reply
        self._wrong: dict[int, str] = {}
        self.right_text = write(self._right, task.format)
        self.difficulty: float | None = called(task.difficulty, prompt, reply, gives=(float, int, NoneType))
        self.hardness = int.from_bytes(self._digest[:8]) / 2**64
        self.input_tokens = (len(prompt.system) + len(prompt.user)) // CHARS_PER_TOKEN

    def broken(self, answer: str, way: int) -> str:
        """The answer with a broken format, which the parser refuses; empty text if it would still accept it."""
        text = _FORMAT_BREAKS[way](answer)
        try:
            parse(text, self._reply, self._task.format, self._task.reading)
        except Malformed:
            return text
        return ""  # the change fell inside a text value and left the format valid

    def wrong(self, alternative: int) -> str:
        """Text of the wrong reply with this number."""
        found = self._wrong.get(alternative)
        if found is None:
            random = Random(self._digest + alternative.to_bytes(4))  # noqa: S311 - seeded
            mistake = called(self._task.mistake, self._prompt, self._right, random, gives=self._reply)
            found = self._wrong[alternative] = write(mistake, self._task.format)
        return found


class _Chance:
    """Independent uniform numbers in (0, 1), derived from the seed and the id of a sample."""

    __slots__ = ("alternative", "error", "flag", "latency", "length")

    def __init__(self, key: bytes, call: Call) -> None:
        election = call.id.election
        again = f"{call.rejected}\0" if call.rejected else ""
        digest = blake2b(f"{election.path}\0{call.id.seq}\0{again}".encode() + election.question_digest, digest_size=20, key=key).digest()
        number = int.from_bytes(digest)
        self.flag = _uniform(number)
        self.error = _uniform(number >> 32)
        self.alternative = _uniform(number >> 64)
        self.length = _uniform(number >> 96)
        self.latency = _uniform(number >> 128)


def _hangs(share: float, key: bytes, call: Call) -> bool:
    """Whether a call gets no reply. Unlike the reply, this differs from attempt to attempt."""
    election = call.id.election
    text = f"{election.path}\0{call.id.seq}\0{call.attempt}\0".encode() + election.question_digest
    return _uniform(int.from_bytes(blake2b(text, digest_size=4, key=key, person=b"hang").digest())) < share


def _uniform(number: int) -> float:
    return ((number & 0xFFFFFFFF) + 0.5) / 2**32


def _pad(answer: str, tokens: int, filler: str) -> tuple[str, int]:
    """The answer behind filler text: the whole text, about as long as asked for, and its length in tokens."""
    thoughts = filler[: max(0, tokens * CHARS_PER_TOKEN - len(answer) - 1)]
    text = f"{thoughts}\n{answer}"
    return text, max(1, len(text) // CHARS_PER_TOKEN)


def _profile(spec: ModelSpec) -> Profile:
    base = PROFILES.get(spec.name)
    if base is None:
        near = get_close_matches(spec.name, PROFILES, n=1)
        hint = f"; did you mean sim:{near[0]}" if near else ""
        raise InvalidUsage(f"there is no simulated model {spec.name!r}{hint}; there are {', '.join(f'sim:{name}' for name in PROFILES)}")
    known = {field.name: field.type for field in structs.fields(Profile)}
    given: dict[str, object] = {}
    for name, text in spec.options.items():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}" if near else ""
            raise InvalidUsage(f"a simulated model has no option {name!r}{hint}; options are {', '.join(known)}")
        try:
            given[name] = convert(f"0{text}" if text.startswith(".") else text, known[name], strict=False)
        except ValueError:
            raise InvalidUsage(f"{name}={text!r} is not a number") from None
    if "error" in given:
        given.setdefault("cool_error", None)  # an explicit error rate holds at every temperature
    profile = structs.replace(base, **given)
    _check(profile)
    return profile


def _check(profile: Profile) -> None:
    for name in ("error", "cool_error", "flag", "hard", "hang"):
        share = getattr(profile, name)
        if share is not None and not 0 <= share <= 1:
            raise InvalidUsage(f"{name}={share!r} must be a share between 0 and 1")
    for name, most in _MAX_VALUES.items():
        if not 0 <= getattr(profile, name) <= most:
            raise InvalidUsage(f"{name}={getattr(profile, name)!r} must be a number of at least 0 and at most {most:,}")
    if not 1 <= profile.alternatives <= MAX_ALTERNATIVES:
        raise InvalidUsage(f"alternatives={profile.alternatives!r} must be at least 1 and at most {MAX_ALTERNATIVES:,}")


# -- ways in which models break a format ---------------------------------------------------------------------------------------------


def _without_last_line(answer: str) -> str:
    return answer.rpartition("\n")[0] if "\n" in answer else answer.partition("=")[0]


_FORMAT_BREAKS: Sequence[Callable[[str], str]] = (
    lambda _: "",
    _without_last_line,
    lambda answer: answer[: len(answer) // 2],
    lambda answer: answer.replace(" = ", ": ").replace('":', '" ='),
    lambda answer: "\n".join(f"**{line}**" for line in answer.splitlines()),
    lambda answer: "\n".join(f"{line}, or so I think" for line in answer.splitlines()),
    lambda answer: answer.replace("=", "= (", 1).replace("\n", ")\n", 1) if "\n" in answer else f"({answer})",
    lambda answer: answer.replace("[", "(").replace("]", ")") if "[" in answer else f"{answer},",
    lambda answer: answer.replace("]", ",]") if "]" in answer else f"{answer},",
    lambda answer: answer.replace('"', "\u201d") if '"' in answer else f"\u201c{answer}\u201d",
    lambda answer: answer.replace("1", "True") if "1" in answer else f"{answer} True",
)
"""In order: empty text, a missing field, half of the text, another separator, bold, text behind the value, a parenthesis, tuples, a
trailing comma, typographic quotes, ``True`` for 1."""
