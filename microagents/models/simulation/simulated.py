"""A simulated model. The task's expert reads the prompt and gives the right reply; the model then makes errors on purpose.

It replaces a real model if no key is available, and in measurements, since its error rates are known. Every reply is a function of the
run's seed, the model's name, the text of the prompt, the path of the election, and the number of the draw.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from functools import lru_cache
from hashlib import blake2b
from math import exp, log
from random import Random
from statistics import NormalDist
from typing import Any, ClassVar, Self

from msgspec import structs

from microagents.actors.registry import STRATEGIES, TASKS
from microagents.actors.role import Context, Strategy
from microagents.base.aio import TaskScope
from microagents.base.errors import InvalidDefinition, InvalidUsage, ModelUnavailable, TaskFailed
from microagents.base.messages import address_of
from microagents.base.text_digests import digest_of
from microagents.base.user_code import called
from microagents.elections.election import SampleId
from microagents.models.model import MAX_SAMPLES, SEVERAL, Call, Model, ModelSpec, Most, samples_per_request, split
from microagents.models.simulation.answers import Answers, SimulatedReply, broken
from microagents.models.simulation.profiles import profile_of
from microagents.replies.chat import Prompt, Sample, Usage
from microagents.replies.masses import LawOfMass, Mass, digest_of_text
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import Reading, system_with_instructions, write
from microagents.replies.rollouts import MAX_OUTPUT_TOKENS, Rollout
from microagents.task import ChainTask, Task, state_class

RAMBLING_ERROR = 0.1
"""Error rate of replies that exceed the length limit (MAKER, figure 9a), and of each step of such a rollout."""
RAMBLING_TOKENS = (760, 2600)
"""Least and greatest length of such a reply in output tokens; of a rollout, for each step of its horizon."""
MAX_RAMBLING_TOKENS = 2 * MAX_OUTPUT_TOKENS
"""A rollout that rambles about many steps ends here: beyond any limit that is sent."""
MAX_PLAIN_TOKENS = 700
"""Greatest length of any other reply in output tokens; of a rollout, for each step of its horizon."""
HANG_S = 120.0
"""Duration after which a call that hangs fails, as one to a provider's server does."""
CHARS_PER_TOKEN = 4
MAX_CACHED_QUESTIONS = 4096
"""Limit of the cache of right replies: every question is asked several times."""

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
    line_bytes: ClassVar[int] = 0
    """Least length of a line: in a pipe of that size the process is one line ahead of its reader."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    @classmethod
    def named(cls) -> Purchases | None:
        """Open the file that the environment names; None if it names none."""
        path = os.environ.get(cls.VARIABLE)
        if not path:
            return None
        return cls(path)

    def note(self, what: str, sample: SampleId) -> None:
        """Log that a call was ``sent`` or ``billed``."""
        # One write per line: a killed process leaves no partial lines.
        line = f"{what} {sample.election.path} {sample.election.question_digest.hex()} {sample.seq}"
        os.write(self._file, f"{line:{self.line_bytes}}\n".encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class SimulatedModel(Model):
    """Model ``sim:PROFILE[@field=value,...]``.

    Args:
        spec: a name of `microagents.models.simulation.profiles.PROFILES`, and fields of `Profile` to change.
        tasks: the task of each input; all have one class.
        seed: the seed of the run.
        reading: the reading of replies; by default the task's.

    Raises:
        InvalidUsage: the profile or an option is unknown, a value is out of range, or the task has no expert.
    """

    throttled_as = None
    takes_turns = True
    takes_files = True
    priced = True  # a profile without prices is free

    def __init__(self, spec: ModelSpec, tasks: Sequence[Task], seed: int, reading: Reading | None = None) -> None:
        self.name = f"sim:{spec.name}"
        self.max_samples = self.most_samples(spec)
        options = {name: text for name, text in spec.options.items() if name != SEVERAL}
        self.profile = profile_of(structs.replace(spec, options=options))
        self.answers_at_once = not (self.profile.latency or self.profile.hang)
        for task in tasks[:1]:  # all have one class
            if type(task).expert is Task.expert:
                if type(task).__module__.startswith("microagents."):
                    define = ""
                else:
                    define = "define the method, or "
                raise InvalidUsage(
                    f"{type(task).__name__} has no `expert`, so the simulated model cannot know right replies; {define}name a real model, "
                    f"such as --model openai:gpt-6-luna; {task.expert_page} shows what it needs for each strategy"
                )
        self._tasks, self._reading = tasks, reading
        self._key = digest_of(f"{seed}", 32)
        self._own_key = blake2b(self.name.encode(), digest_size=32, key=self._key).digest()
        self._purchases = Purchases.named()
        self._answers: OrderedDict[tuple[str, str, type[Reply], int, bytes], Answers] = OrderedDict()

    @classmethod
    def most_samples(cls, spec: ModelSpec) -> int:
        """Return the number of samples that a request asks for.

        Raises:
            InvalidUsage: the option of the spec is not a number from 1 on.
        """
        return samples_per_request(spec.options, MAX_SAMPLES)

    @classmethod
    def open(cls, spec: ModelSpec, context: Context) -> Self:
        """Open the model of a profile, for the tasks of the run.

        Raises:
            InvalidUsage: it cannot answer the questions of the run's strategy.
        """
        if context.tasks and all(each.startswith("sim:") for pool in context.models.values() for each in pool):
            _check_expert(context.strategy, context.tasks[0])
        return cls(spec, context.tasks, context.seed, context.settings.get("reading"))

    def at_most(self, call: Call) -> Most:
        """Bound the usage of a call: the tokens of its prompt are known."""
        read = self._input_tokens(call)
        written = call.samples * call.max_output_tokens
        return Most(tokens=read + written, cost_usd=self._cost_usd(read, written))

    async def complete_several(self, call: Call) -> Sequence[Sample]:
        """Return several samples after the longest latency. Each is the one that its own call would give; the prompt is billed once."""
        if self._purchases is not None:
            self._purchases.note("sent", call.id)
        async with TaskScope() as scope:
            draws = [scope.start(self._draw(single)) for single in call.singles()]
            drawn = [await draw for draw in draws]
        if self._purchases is not None:
            self._purchases.note("billed", call.id)
        return [self._with_part_of_prompt(each, part, len(drawn)) for part, each in enumerate(drawn)]

    def _with_part_of_prompt(self, sample: Sample, part: int, parts: int) -> Sample:
        usage = sample.usage
        read = split(usage.input_tokens or 0, [1] * parts)[part]
        cost_usd = self._cost_usd(read, usage.output_tokens or 0)
        return structs.replace(sample, usage=structs.replace(usage, input_tokens=read, cost_usd=cost_usd))

    def complete(self, call: Call) -> Coroutine[Any, Any, Sample]:
        """Return one sample, after its latency."""
        if self._purchases is None:
            return self._draw(call)
        return self._draw_and_log(self._purchases, call)

    async def _draw_and_log(self, purchases: Purchases, call: Call) -> Sample:
        purchases.note("sent", call.id)
        sample = await self._draw(call)
        purchases.note("billed", call.id)
        return sample

    async def _draw(self, call: Call) -> Sample:
        # An expert reads only the question. It need not know the form of feedback.
        prompt = call.question
        chance = _Chance(self._own_key, call, prompt)
        if self.profile.hang and _hangs(self.profile.hang, self._own_key, call, prompt):
            await asyncio.sleep(HANG_S)
            raise ModelUnavailable("timeout", f"no complete reply within {HANG_S:g} s")
        if self.profile.latency > 0:
            deviation = _NORMAL.inv_cdf(chance.latency)
            await asyncio.sleep(self.profile.latency * exp(self.profile.sigma * deviation))
        text, tokens, mass = self._reply(call, prompt, chance)
        finish = "stop"
        if tokens > call.max_output_tokens:
            text, tokens, finish = text[: call.max_output_tokens * CHARS_PER_TOKEN], call.max_output_tokens, "length"
            mass = None
        input_tokens = self._input_tokens(call)
        usage = Usage(input_tokens=input_tokens, output_tokens=tokens, cost_usd=self._cost_usd(input_tokens, tokens))
        return Sample(text=text, finish=finish, usage=usage, model=self.name, mass=mass)

    def _input_tokens(self, call: Call) -> int:
        prompt = call.question
        return (len(prompt.system) + len(prompt.user)) // CHARS_PER_TOKEN

    def _cost_usd(self, read: int, written: int) -> float:
        return (read * self.profile.price_in + written * self.profile.price_out) / 1e6

    async def close(self) -> None:
        """Close the log of calls."""
        if self._purchases is not None:
            self._purchases.close()
            self._purchases = None

    def is_hard(self, prompt: Prompt) -> bool:
        """Return whether a question is one of the hard ones in any request: by itself, or as a step of a rollout.

        It depends on the seed, the model's name, the profile's ``hard`` and the text of the question, so a paraphrase is another question.

        Args:
            prompt: the question of one step, with its format instructions in the system prompt.
        """
        if not self.profile.hard:
            return False
        text = _text_digest(prompt.system, prompt.user)
        return int.from_bytes(blake2b(text, digest_size=8, key=self._own_key).digest()) / 2**64 < self.profile.hard

    def _answers_to(self, prompt: Prompt, reply: type[Reply], call: Call) -> Answers:
        key = (prompt.user, prompt.system, reply, call.id.election.input, call.handed)
        found = self._answers.get(key)
        if found is None:
            found = self._answers[key] = Answers(self._task(call), prompt, reply, self._key, hard=self.is_hard(prompt))
            if len(self._answers) > MAX_CACHED_QUESTIONS:
                self._answers.popitem(last=False)
        return found

    def _reply(self, call: Call, prompt: Prompt, chance: _Chance) -> tuple[str, int, Mass | None]:
        """Write the text of a reply, count its tokens, and give the mass of its answer, whatever stands before that."""
        mass: Mass | None = None
        profile = self.profile
        rambles = chance.flag < profile.flag / 2
        tokens, steps = profile.tokens * exp(0.2 * _NORMAL.inv_cdf(chance.length)), 1
        if issubclass(call.reply, Rollout):
            answer, steps = self._rollout(call.reply, prompt, call, chance, rambles=rambles), call.reply.horizon
            tokens += len(answer) / CHARS_PER_TOKEN
        else:
            answers = self._answers_to(prompt, call.reply, call)
            rate = RAMBLING_ERROR if rambles else self._error_rate(answers, call.temperature)
            answer = self._choose(answers, rate, chance.error, chance.alternative).text
            if call.needs_mass:
                mass = self._mass_of(answers, call.temperature, answer)
        if rambles:
            low, high = RAMBLING_TOKENS
            tokens = min(steps * int(low + (high - low) * chance.length), MAX_RAMBLING_TOKENS)
            return *_pad(answer, int(tokens), _RAMBLING), None
        if chance.flag < profile.flag:
            task = self._task(call)
            answer = broken(answer, chance.alternative, call.reply, task.format, self._reading or task.reading)
            mass = None
        if not answer:
            return "", 0, None
        if not self._task(call).reasoning:
            return answer, max(1, len(answer) // CHARS_PER_TOKEN), mass
        return *_pad(answer, int(min(tokens, steps * MAX_PLAIN_TOKENS)), _REASONING), mass

    def _mass_of(self, answers: Answers, temperature: float | None, answer: str) -> Mass | None:
        """Return the probability of an answer in a reply that neither rambles nor is broken; of a wrong one at least.

        A draw at temperature 0 is no mode here, so its law is that at 1, as of other models.
        """
        rate = self._error_rate(answers, temperature or 1.0)
        if answer == answers.right.text:
            share = 1 - rate
        else:
            share = rate / (1 if answers.hard else self.profile.alternatives)
        p = (1 - self.profile.flag) * share
        law: LawOfMass = "model" if temperature == 0 else "draw"
        if p > 0:
            return Mass(log=log(p), text=digest_of_text(answer), law=law)
        return None

    def _rollout(self, rollout: type[Rollout], prompt: Prompt, call: Call, chance: _Chance, *, rambles: bool) -> str:
        """Do the steps from the state that a prompt shows. A wrong one leads all later ones on from a wrong state.

        It ends at the horizon, after the last step of the task, or when the task's code fails, as it may in an impossible state.
        """
        task = self._chain(call)
        state_type, reply = state_class(type(task)), task.reply_type()
        state, random, steps = called(task.state_in, prompt, gives=state_type), Random(chance.number), list[Reply]()  # noqa: S311 - seeded
        while len(steps) < rollout.horizon:
            try:
                asked = called(task.prompt, state, gives=Prompt)
                alone = Prompt(
                    system=system_with_instructions(asked.system, reply, task.format, task.reasoning), user=asked.user
                )
                answers = self._answers_to(alone, reply, call)
                if rambles:
                    rate = RAMBLING_ERROR
                else:
                    rate = self._error_rate(answers, call.temperature, len(steps))
                steps.append(self._choose(answers, rate, random.random(), random.random()).reply)
                state = called(task.advance, state, steps[-1], gives=state_type)
                if called(task.done, state, gives=bool):
                    break
            except TaskFailed:
                if not steps:
                    raise
                break
        return write(rollout(steps=tuple(steps)), task.format)

    def _task(self, call: Call) -> Task:
        return self._tasks[call.id.election.input].handed(call.handed)

    def _chain(self, call: Call) -> ChainTask:
        task = self._task(call)
        _check_state_in(task)
        assert isinstance(task, ChainTask)
        return task

    def _choose(self, answers: Answers, rate: float, error: float, alternative: float) -> SimulatedReply:
        """Choose the right answer or a wrong one, by two uniform numbers. A hard question has one wrong answer."""
        if error >= rate:
            return answers.right
        return answers.wrong(0 if answers.hard else int(alternative * self.profile.alternatives))

    def _error_rate(self, answers: Answers, temperature: float | None, steps_before: int = 0) -> float:
        """Compute the error rate at a question, after ``steps_before`` steps in the same reply."""
        profile = self.profile
        if answers.hard:
            alone, ahead = profile.hard_error, profile.hard_ahead
            return (alone, (alone + ahead) / 2, ahead)[min(steps_before, 2)]
        added = profile.decay * steps_before
        if answers.difficulty is not None:
            return answers.difficulty + added
        warm, cool = profile.error, profile.cool_error
        if cool is None or temperature is None or temperature >= 1:
            return warm + added
        return cool + (warm - cool) * max(0.0, (temperature - 0.1) / 0.9) + added


def _check_state_in(task: Task) -> None:
    """Refuse a task whose rollouts cannot be simulated.

    Raises:
        InvalidUsage: it has no `state_in`.
    """
    if not isinstance(task, ChainTask) or type(task).state_in is ChainTask.state_in:
        raise InvalidUsage(
            f"{type(task).__name__} has no `state_in`, so the simulated model cannot continue from the state that a prompt shows; "
            "define the method, or name a real model, such as --model openai:gpt-6-luna; "
            f"{task.expert_page} shows what it needs for each strategy"
        )


def _check_expert(strategy: Strategy, task: Task) -> None:
    """Refuse a strategy whose questions the task's expert does not know, before the run begins.

    Raises:
        InvalidUsage: it does not know one of them, or cannot read the state that a rollout continues from.
    """
    if type(task).expert is Task.expert:
        return
    if strategy.draws_rollouts and isinstance(task, ChainTask):
        _check_state_in(task)
    try:
        for prompt, reply in strategy.trial_questions(task):
            called(task.expert, prompt, reply)
    except InvalidDefinition as error:
        raise InvalidUsage(
            f"the simulated model cannot do the strategy {STRATEGIES.name_of(address_of(type(strategy)))} for "
            f"{TASKS.name_of(address_of(type(task)))}, whose expert does not know its questions; name a real model, such as "
            f"--model openai:gpt-6-luna, or another strategy; {task.expert_page} shows what it needs for each strategy"
        ) from error
    except TaskFailed:  # the run itself will report what fails, and on which input
        return


_FIVE = struct.Struct(">5I")


@lru_cache(maxsize=1024)
def _text_digest(system: str, user: str) -> bytes:
    """Digest the text of a prompt, cached: it is long, and the samples of an election share it."""
    return digest_of(f"{system}\0{user}")


class _Chance:
    """Independent uniform numbers in (0, 1), derived from the question, its place, and the number of the draw."""

    __slots__ = ("alternative", "error", "flag", "latency", "length", "number")

    def __init__(self, key: bytes, call: Call, prompt: Prompt) -> None:
        again = f"{call.rejected}\0" if call.rejected else ""
        place = f"{call.id.election.path}\0{call.id.seq}\0{again}".encode()
        digest = blake2b(place + _text_digest(prompt.system, prompt.user), digest_size=20, key=key).digest()
        self.number = int.from_bytes(digest)
        uniform = [(part + 0.5) / 2**32 for part in _FIVE.unpack(digest)]
        self.latency, self.length, self.alternative, self.error, self.flag = uniform


def _hangs(share: float, key: bytes, call: Call, prompt: Prompt) -> bool:
    """Return whether a call gets no reply. Unlike the reply, this differs from attempt to attempt."""
    place = f"{call.id.election.path}\0{call.id.seq}\0{call.attempt}\0".encode()
    text = place + _text_digest(prompt.system, prompt.user)
    drawn = blake2b(text, digest_size=4, key=key, person=b"hang")
    return _uniform(int.from_bytes(drawn.digest())) < share


def _uniform(number: int) -> float:
    return ((number & 0xFFFFFFFF) + 0.5) / 2**32


def _pad(answer: str, tokens: int, filler: str) -> tuple[str, int]:
    """Put filler text before the answer: the whole text, about as long as asked for, and its length in tokens."""
    length = max(0, tokens * CHARS_PER_TOKEN - len(answer) - 1)
    thoughts = (filler * (length // len(filler) + 1))[:length]
    text = f"{thoughts}\n{answer}"
    return text, max(1, len(text) // CHARS_PER_TOKEN)
