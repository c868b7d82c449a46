"""The interface of model providers: one call in, one sample or one `ModelUnavailable` out."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from inspect import iscoroutinefunction
from itertools import accumulate
from typing import Any, Protocol, Self, get_type_hints

import msgspec
from msgspec import MsgspecError, Struct, field, json, structs
from pydantic import TypeAdapter, ValidationError

from microagents.actors.registry import MODELS, OBJECT, can_be_found, reference_to, unknown
from microagents.actors.role import Context
from microagents.base.errors import InvalidUsage, ModelUnavailable, in_own_words
from microagents.base.foreign_text import in_whole_characters
from microagents.elections.election import CallTerms, SampleId
from microagents.elections.sample_batches import BatchLedger
from microagents.models.capabilities import meant_spec
from microagents.models.possible_usage import possible
from microagents.models.prices import Tariff, UserPrices
from microagents.models.rates import Rate
from microagents.replies.chat import Prompt, Sample, Usage
from microagents.replies.masses import Mass
from microagents.replies.media import Media
from microagents.replies.reply import Reply
from microagents.replies.turns import without_files
from microagents.tools.effect_keys import keyed_by

TEMPLATE_TOKENS = 512
"""Tokens that a server may add to a prompt: the marks of messages, and instructions of its own."""


class Call(CallTerms, frozen=True, kw_only=True):
    """One request for one sample."""

    reply: type[Reply]
    """Class of the reply, for providers that constrain the output. The format instructions are already in the prompt."""
    attempt: int = 0
    """Number of attempts at this sample before this one."""
    whole: Prompt | None = None
    """The prompt with its turns, for a model that gets it as one text."""
    contents: dict[str, bytes] = field(default_factory=dict)
    """Bytes of the files of the prompt, by their digests."""

    def singles(self) -> list[Call]:
        """Return a call for each of its samples, in launch order."""
        election, first = self.id.election, self.id.seq
        ids = [SampleId(election=election, seq=seq) for seq in range(first, first + self.samples)]
        return [structs.replace(self, id=each, samples=1) for each in ids]

    @property
    def question(self) -> Prompt:
        """The prompt as one text, without the feedback of `verify`."""
        return (self.whole or self.prompt).without_feedback(self.rejected).flat


class Most(Struct, frozen=True, kw_only=True):
    """Most that one call can use."""

    tokens: int
    """Tokens of the prompt and of the reply."""
    cost_usd: float | None
    """None if the model's price is known only from its replies."""

    def tokens_of(self, usage: Usage) -> int:
        """Tokens of a reply. With an unknown count: the most, or what is known and the most if the model passed it."""
        known = (usage.input_tokens or 0) + (usage.output_tokens or 0)
        if usage.input_tokens is not None and usage.output_tokens is not None:
            return known
        if known <= self.tokens:
            return self.tokens
        return known + self.tokens

    def cost_of(self, usage: Usage) -> float | None:
        """Cost of a reply. If it is unknown: the most, and in proportion more if the model passed the tokens of it."""
        if usage.cost_usd is not None or self.cost_usd is None:
            return usage.cost_usd
        return self.cost_usd * max(1.0, self.tokens_of(usage) / max(1, self.tokens))


def keyed_by_sample(call: Call, run_id: str | None = None) -> AbstractContextManager[None]:
    """A block in which a model takes a sample: its key is the same in every attempt."""
    election = call.id.election
    return keyed_by(run_id, election.path, (election.question_digest, call.id.seq, call.rejected))


def most_tokens(prompt: Prompt) -> int:
    """Bound the tokens of a prompt: no token of a text is shorter than a byte."""
    return prompt.size + TEMPLATE_TOKENS * (1 + len(prompt.turns))


_OPTIONS = re.compile(r"@(?=\s*[A-Za-z_]\w*\s*=|$)")
"""The @ before the options of a spec."""


def without_options(spec: str) -> str:
    """Return the provider and the name of a spec."""
    return _OPTIONS.split(spec, maxsplit=1)[0]


class ModelSpec(Struct, frozen=True, kw_only=True):
    """Parts of a spec ``provider:name[@key=value,...]``."""

    provider: str
    name: str
    options: dict[str, str] = {}

    @classmethod
    def parse(cls, text: str) -> ModelSpec:
        """Read a spec such as ``openai:my-model@base_url=http://localhost:8000/v1``.

        A name may have an @, as in ``openai:@cf/meta/llama-3.1-8b@base_url=...``: options begin at the first one before ``NAME=``.

        Raises:
            InvalidUsage: the text does not have this form.
        """
        head, *others = _OPTIONS.split(text, maxsplit=1)
        tail = "".join(others)
        provider, colon, name = head.partition(":")
        pairs = [pair.partition("=") for pair in tail.split(",") if pair]
        has_values = all(key and equals for key, equals, _ in pairs)
        if not (provider and colon and name and has_values):
            meant = meant_spec(text)
            hint = f"; did you mean {meant}?" if meant else ""
            raise InvalidUsage(
                f"write a model as provider:model[@key=value,...], such as sim:gpt-4.1-mini@error=0.01, not {text!r}{hint}"
            )
        return cls(provider=provider, name=name, options={key.strip(): value.strip() for key, _, value in pairs})


class BatchSender(Protocol):
    """Sends the calls of a model in batches."""

    sent_singly: int
    """Number of calls in flight in no batch."""

    async def attach(self, ledger: BatchLedger) -> None:
        """Take the records of the run, before the first call.

        Raises:
            InvalidUsage: a batch without results belongs to another account.
        """

    def has_bought(self, call: Call, *, earlier: bool = False) -> bool:
        """Whether a batch has the sample of a call, or it is gathered for one; with ``earlier`` only batches of earlier sittings count."""
        ...

    async def end_of(self, name: str) -> None:
        """Wait until the results of a batch are there that draws are parked for; returns at once if it is of another model.

        Raises:
            NotSent: the run is ending.
            MicroagentsError: there are no results.
        """

    def let_go(self, *, cancels: bool) -> None:
        """End all waits, since the run ends; with ``cancels`` cancel the open batches, too."""


class Model:
    """A source of samples, used by one event loop. Subclass it to bring your own provider.

    Set the attributes in the class, or in ``__init__``.
    """

    priced: bool = False
    """Whether ``usage.cost_usd`` of its samples is a number; by default the price is unknown."""
    max_in_flight: int | None = None
    """Number of calls that it can take at a time; further ones wait in the solver, unsent. None for any number."""
    max_samples: int = 1
    """Number of samples of one prompt that one request can give (`complete_several`)."""
    takes_turns: bool = False
    """Whether it takes the turns and the tools of a prompt; any other model gets it as one text (`Prompt.flat`)."""
    takes_files: bool = False
    """Whether it takes pictures and files; a prompt with some is refused in the name of any other model."""
    answers_at_once: bool = False
    """Whether `complete` waits for nothing, so that no call has to be watched for taking too long, or needs a task of its own."""

    def refusal_of(self, file: Media) -> str | None:  # noqa: ARG002 - for models that take some kinds
        """Say why it does not take a picture or a file; None if it does, as far as is known before it is asked."""
        if self.takes_files:
            return None
        return f"{type(self).__name__} takes no pictures and files"

    @property
    def refused(self) -> Mapping[str, str | None]:
        """Parameters that are not sent since the model refuses them, each with the one sent instead; the run's journal keeps them.

        `SEVERAL_AT_ONCE` among them says that a request gives one sample only.
        """
        return {}

    def refuse(self, refused: Mapping[str, str | None]) -> None:
        """Take over the refusals that an earlier sitting of the run met."""

    @property
    def throttled_as(self) -> str | None:
        """Name under which all solvers of a run share a throttle for it (`microagents.models.throttle`).

        Empty, the default, stands for its spec. None is for no throttle: all its calls may be in flight at once.
        """
        return ""

    @property
    def rates(self) -> Mapping[str, Rate]:
        """Requests and tokens a minute that the provider allows, as far as its first reply states them."""
        return {}

    def at_most(self, call: Call) -> Most | None:  # noqa: ARG002 - for models that know
        """Bound the usage of a call; ``--max-tokens`` and ``--max-cost`` reserve it before the call is sent.

        None, the default, if that is known only from replies: the first call then goes alone, and the dearest so far bounds later ones.
        """
        return None

    @classmethod
    def tariff(cls, spec: ModelSpec, prices: UserPrices) -> Tariff | None:  # noqa: ARG003 - for providers that have prices
        """Price the calls to the model of a spec; None, the default, if the cost is known only from its replies.

        Args:
            spec: the model.
            prices: the user's prices by ``provider:model``.

        Raises:
            InvalidUsage: a price in the spec is refused.
        """
        return None

    @classmethod
    def most_samples(cls, spec: ModelSpec) -> int:  # noqa: ARG003 - for providers with an option
        """Return the number of samples that a request to the model of a spec can ask for; by default its ``max_samples``."""
        return cls.max_samples

    @classmethod
    def open(cls, spec: ModelSpec, context: Context) -> Self:  # noqa: ARG003 - for providers that need the run
        """Build the model of a spec, in the process that will call it.

        By default the class is called with the options of the spec, each read as the type that ``__init__`` annotates.

        Raises:
            InvalidUsage: an option is unknown, missing, or of another type.
        """
        try:
            return cls(**_typed(cls, spec.options))
        except (TypeError, ValidationError) as error:
            said = in_own_words(error.errors()[0]["msg"]) if isinstance(error, ValidationError) else error
            raise InvalidUsage(f"{cls.__name__} does not take the options {spec.options}: {said}") from None

    @property
    def batches(self) -> BatchSender | None:
        """Sends its calls in batches; None, the default, if they go singly.

        Such calls may take hours: they have no timeout, are not sent again as stragglers, and no pause cancels them; the end of a run
        leaves them to its next sitting.
        """
        return None

    async def prepare(self) -> None:
        """Import and open all that calls need before the first is allotted: after a kill no limit counts a call that could not be sent."""

    async def complete(self, call: Call) -> Sample:
        """Take one sample, in one attempt: the solver retries. `current_effect_key` is the same in all attempts at it.

        Raises:
            ModelUnavailable: no reply arrived.
        """
        raise NotImplementedError

    async def complete_several(self, call: Call) -> Sequence[Sample]:
        """Take ``call.samples`` samples of one prompt, at most `max_samples`, in one request and one attempt; in launch order.

        The price of the prompt is split over the samples. A model may give fewer, but at least one: the others are drawn singly.

        Raises:
            ModelUnavailable: no reply arrived.
        """
        raise NotImplementedError

    def in_run(self, context: Context) -> Model:  # noqa: ARG002 - for models that need the run
        """Return the model for the calls of one run, if it was given as an object; by default itself."""
        return self

    async def close(self) -> None:
        """Release connections."""


SEVERAL_AT_ONCE = "n"
"""The name under which a model refuses several samples of one request."""
SEVERAL = "votes_per_request"
"""The option of a spec that says how many samples a request asks for: a number, or ``auto``."""


def samples_per_request(options: Mapping[str, str], most: int, default: str = "1") -> int:
    """Read the number of samples of a request from the options of a spec.

    Args:
        options: the options.
        most: the number that the model can give, or that ``auto`` asks for at most.
        default: the value if the option is missing.

    Raises:
        InvalidUsage: the option is not a number from 1 on.
    """
    text = options.get(SEVERAL, default)
    if text == "auto":
        return most
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= MAX_SAMPLES):
        raise InvalidUsage(f"{SEVERAL} must be auto or a number from 1 to {MAX_SAMPLES}, not {text!r}")
    return int(text)


MAX_SAMPLES = 128
"""Largest number of samples that a request asks for (OpenAI)."""


def split(total: int, shares: Sequence[float]) -> list[int]:
    """Split a number by shares into whole parts, which add up to it."""
    whole, parts, before = sum(shares), list[int](), 0
    for upto in accumulate(shares):
        end = round(total * upto / whole)
        parts.append(end - before)
        before = end
    return parts


def _typed(model: type[Model], options: Mapping[str, str]) -> dict[str, Any]:
    hints = get_type_hints(model.__init__)
    adapters = {name: TypeAdapter(hints.get(name, str)) for name in options}
    return {name: adapters[name].validate_python(text) for name, text in options.items()}


ModelFunction = Callable[[Call], Awaitable[Sample | str]]
"""A provider as one async function that returns a sample, or only its text."""


class Completer(Protocol):
    """An object with an async method ``complete`` that returns a sample, or only its text: a model that need not subclass `Model`."""

    async def complete(self, call: Call, /) -> Sample | str:
        """Take one sample, in one attempt."""
        ...


ModelObject = Model | Completer | ModelFunction
"""A model that is given as an object."""


def as_taken(call: Call, model: Model) -> Call:
    """Return a call as a model takes it: with the turns and tools of its prompt, or as one text.

    Pictures and files of results that it does not take are left out, with words in their place.

    Raises:
        ModelUnavailable: the prompt has a picture or a file that the model does not take.
    """
    untaken = [file for file in call.prompt.all_files if model.refusal_of(file) is not None]
    if untaken:
        prompt = structs.replace(call.prompt, turns=without_files(call.prompt.turns, untaken))
        call = structs.replace(call, prompt=prompt)
        for file in prompt.all_files:
            if file in untaken:
                why = f"{model.refusal_of(file)}, and the prompt has a {file.shown}; nothing was sent"
                raise ModelUnavailable("refused", why)
    if model.takes_turns or not call.prompt.is_conversation:
        return call
    return structs.replace(call, prompt=call.prompt.flat, whole=call.prompt)


class FunctionModel(Model):
    """A model that calls an async function.

    Args:
        function: the function.
        spec: the name of the model in samples and errors.
        priced: whether the samples have a cost.
        takes_turns: whether it takes the turns and the tools of a prompt.
        takes_files: whether it takes the files of a prompt.
    """

    def __init__(
        self,
        function: ModelFunction,
        spec: str,
        *,
        priced: bool = False,
        takes_turns: bool = False,
        takes_files: bool = False,
    ) -> None:
        self._function = function
        self._spec = spec
        self.priced = priced
        self.takes_turns = takes_turns
        self.takes_files = takes_files

    async def complete(self, call: Call) -> Sample:
        """Call the function."""
        given = await self._function(call)
        if isinstance(given, str):
            return Sample(text=given, model=self._spec)
        return given


def checked_sample(given: object, provider: str) -> Sample:
    """Check the sample that a provider gave.

    Raises:
        ModelUnavailable: it is not a sample, or its text or usage is of no use.
    """
    if isinstance(given, Sample) and _is_of_use(given):
        given = structs.replace(given, text=in_whole_characters(given.text))
        if given.mass is not None and not _can_be_kept(given.mass):
            given = structs.replace(given, mass=None)
        usage = possible(given.usage)
        if usage is not given.usage:
            given = structs.replace(given, usage=usage)
        if given.text and 0 in (usage.input_tokens, usage.output_tokens):
            return _without_zero_usage(given)
        return given
    raise ModelUnavailable(
        "refused",
        f"{provider} must give a Sample with a text and a Usage, or if it is a function a text, not {given!r:.100}",
    )


def checked_samples(given: object, asked: int, provider: str) -> Sequence[Sample]:
    """Check the answer of a provider that was asked for a number of samples: one as it is, several as a sequence of at least one.

    Raises:
        ModelUnavailable: it is neither, or a sample is of no use.
    """
    if asked == 1:
        return (checked_sample(given, provider),)
    if not isinstance(given, Sequence) or not given:
        raise ModelUnavailable("refused", f"{provider} must give a list of samples, not {given!r:.100}")
    return [checked_sample(each, provider) for each in given[:asked]]


def _is_of_use(given: Sample) -> bool:
    """Whether each field has its type: a struct takes any value, and a message to another process does not."""
    usage: object = given.usage
    try:  # numbers of a usage that cannot be right are left out, and named
        msgspec.convert(msgspec.to_builtins(structs.replace(given, usage=Usage())), Sample)
    except (TypeError, ValueError, RecursionError):
        return False
    return isinstance(usage, Usage) and all(0 <= share <= 1 for share in given.shares.values())


def _can_be_kept(mass: Mass) -> bool:
    """Whether a journal gives a mass back as it is: JSON has no NaN and no infinity."""
    try:
        return json.decode(json.encode(mass), type=Mass) == mass
    except (MsgspecError, ValueError, TypeError):
        return False


def _without_zero_usage(sample: Sample) -> Sample:
    """Return the sample without counts of zero: no prompt and no text has no tokens, so they say as little as counts that are missing."""
    usage = sample.usage
    unknown = structs.replace(
        usage,
        input_tokens=usage.input_tokens or None,
        output_tokens=usage.output_tokens or None,
        cost_usd=usage.cost_usd or None,
    )
    return structs.replace(sample, usage=unknown)


def checked_model(model: Model, spec: str) -> Model:
    """Return the model, if its ``max_in_flight`` is of use.

    Raises:
        InvalidUsage: it is neither None nor a number of calls.
    """
    most: object = model.max_in_flight
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise InvalidUsage(
            f"max_in_flight of the model {spec!r} must be None or a number of calls from 1 on, not {most!r:.100}"
        )
    return model


def spec_of(model: object) -> str:
    """Write the spec that stands for a model given as an object.

    A function's is its source, from which a resumed run can import it. An instance's is ``object:`` and its ``spec`` attribute, or the
    source of its class: its arguments are unknown to the journal, so only the program that has the object can resume the run.

    Raises:
        InvalidUsage: the object has no async ``complete``, and is not an async function.
    """
    if isinstance(model, type):
        raise InvalidUsage(f"give an instance of a model, or its name in a spec, not the class {model!r:.100}")
    if isinstance(model, Model) or iscoroutinefunction(getattr(model, "complete", None)):
        return f"{OBJECT}:{getattr(model, 'spec', None) or reference_to(type(model))}"
    if not (iscoroutinefunction(model) and hasattr(model, "__qualname__")):
        raise InvalidUsage(
            "a model must be a spec, an object with an `async def complete(self, call)`, an `async def` function, or a provider's "
            f"client in client_model(CLIENT, NAME), not {model!r:.100}"
        )
    return reference_to(model)


def open_model(text: str, context: Context) -> Model:
    """Open the model of a spec. Only the module of its provider is imported.

    Raises:
        InvalidUsage: the provider or an option is unknown, a key is missing, or the simulated model cannot do the task.
    """
    given = context.model_objects.get(text)
    if given is not None:
        # The caller owns an object that is no `Model`, and closes it.
        if isinstance(given, Model):
            return given.in_run(context)
        return _of_function(given, text)
    spec = ModelSpec.parse(text)
    found = _found(spec, text, context)
    if isinstance(found, type) and issubclass(found, Model):
        return found.open(spec, context)
    return _of_function(found, text)


def most_samples(text: str, context: Context) -> int:
    """Return the number of samples that one request to the model of a spec can ask for. The model is not opened.

    Raises:
        InvalidUsage: as `open_model`.
    """
    given = context.model_objects.get(text)
    if given is not None:
        return int(getattr(given, "max_samples", 1))
    spec = ModelSpec.parse(text)
    found = _found(spec, text, context)
    if isinstance(found, type) and issubclass(found, Model):
        return found.most_samples(spec)
    return 1


def _found(spec: ModelSpec, text: str, context: Context) -> Any:
    """Find the class or the function that a spec names."""
    if spec.provider == OBJECT or not can_be_found(f"{spec.provider}:{spec.name}"):
        raise InvalidUsage(
            f"the model {text!r} was given as an object, which cannot be built from its name; run the program that began this run again, "
            f"with run_id={context.run_id!r}"
        )
    name = spec.provider if spec.provider in MODELS.addresses else f"{spec.provider}:{spec.name}"
    if (
        name != spec.provider
        and "." not in spec.provider
        and spec.provider not in sys.modules
        and find_spec(spec.provider) is None
    ):
        said = unknown("provider of models called", spec.provider, list(MODELS.addresses))
        raise InvalidUsage(f"{said}; or name your own as path/file.py:Class or package.module:Class, unlike {text!r}")
    return MODELS.find_or_function(name, Model)


def _of_function(given: Any, text: str) -> FunctionModel:
    """Make a model of a function, or of an object with ``complete``. Either may have ``priced``, ``takes_turns``, ``takes_files``."""
    stated = {name: getattr(given, name, False) is True for name in ("priced", "takes_turns", "takes_files")}
    return FunctionModel(getattr(given, "complete", given), text, **stated)
