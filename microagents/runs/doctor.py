"""Checks of this machine and of providers before a run: findings, missing parts, and remedies."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from itertools import chain
from pathlib import Path
from typing import Literal

from msgspec import Struct

from microagents.actors.role import Context, Strategy
from microagents.base.errors import InvalidUsage, MicroagentsError, ModelUnavailable
from microagents.base.files import is_there
from microagents.elections.election import ElectionId, SampleId
from microagents.models.capabilities import capabilities_of, has_ended, nearest_model
from microagents.models.http.open_files import connections_allowed
from microagents.models.http.provider import HttpModel
from microagents.models.http.refusals import NO_SUCH_PATH
from microagents.models.http.sending import Answered, Response
from microagents.models.listings import Listed, models_in
from microagents.models.model import Call, ModelSpec, as_taken, checked_sample, open_model
from microagents.models.openai import OpenAIModel
from microagents.models.simulation.profiles import profile_of
from microagents.models.tiny.vocabulary import PROVIDER
from microagents.replies.chat import Prompt
from microagents.replies.parsing import malformed_reason
from microagents.replies.reply_forms import instructions
from microagents.replies.tool_calls import Calls
from microagents.replies.turns import canonical

CHECK_S, CALL_S = 10.0, 60.0
"""Seconds that one check may take, and the calls of a tool."""
MAX_CALL_TOKENS = 2_048
CALL_ASKED = "Call the tool `note` once, with the text ready."
CALL_TOOLS = canonical(
    [
        {
            "name": "note",
            "description": "Write a note.",
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        }
    ]
)
LEAST_FREE_BYTES = 2**30
"""Journals of long runs take some gigabytes."""
MAX_CLOCK_S = 60.0
"""Difference to a provider's clock from which it matters: dates of `Retry-After`, and certificates."""
PREFIX_COUNTER = rb"(?m)^vllm:prefix_cache_%b(?:_total)?(?:{[^\n]*})? ([0-9.e+]+)$"
"""A counter of vLLM for Prometheus, by its last word."""
KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY"}
"""Environment variable with the key of each provider."""

State = Literal["ok", "missing", "optional"]


class Finding(Struct, frozen=True, kw_only=True):
    """Result of one check."""

    subject: str
    state: State
    """``missing``: the named models, runtime or folder cannot be used. ``optional``: it is not there, and not needed for them."""
    said: str
    """The finding; and the remedy if something is missing."""


async def examine(
    models: Sequence[str], runs_dir: Path, *, on_ray: bool = False, asks_calls: bool = False
) -> list[Finding]:
    """Check the needs of these models, of this folder and, on request, of Ray; and for which providers there is a key.

    With ``asks_calls`` each model that can be used is asked for one call of a tool, which costs some hundred tokens.
    """
    named = [ModelSpec.parse(spec) for spec in models]
    known = {spec.provider.partition("-")[0] for spec in named}
    others = [provider for provider in KEYS if provider not in known]
    examined = [examined_model(each, asks_calls=asks_calls) for each in models]
    ray = _bounded("Ray", asyncio.to_thread(_ray, is_needed=on_ray), CHECK_S)
    disk = _bounded("disk", asyncio.to_thread(_disk, runs_dir), CHECK_S)
    *of_models, of_ray, of_disk = await asyncio.gather(*examined, ray, disk)
    findings = [*chain.from_iterable(of_models), *map(_key, others), _open_files(), *of_ray, *of_disk]
    if all(each.subject != "clock" for each in findings):
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        findings.append(_ok("clock", f"{now}; compared with a provider's where one is asked"))
    keys = [os.environ.get(name, "") for name in KEYS.values()]
    if not "".join(keys).strip():
        said = "none is set: only simulated models and servers without a key can be asked"
        findings.append(_missing("keys", said, is_needed=False))
    return findings


async def examined_model(spec: str, *, asks_calls: bool = False) -> list[Finding]:
    """Check the needs of one model; with ``asks_calls`` also whether it calls tools."""
    found = await _bounded(spec, _model(spec), CHECK_S)
    can_be_asked = any(each.subject == f"{spec} endpoint" for each in found)
    if asks_calls and can_be_asked and all(each.state != "missing" for each in found):
        found += await _bounded(f"{spec} calls", _calls(spec), CALL_S)
    return found


async def _bounded(subject: str, check: Awaitable[list[Finding]], most_s: float) -> list[Finding]:
    try:
        async with asyncio.timeout(most_s):
            return await check
    except TimeoutError:
        return [_missing(subject, f"no answer within {most_s:g} s; try again, or check the network")]
    except MicroagentsError as error:
        return [_missing(subject, str(error))]


def _ok(subject: str, said: str) -> Finding:
    return Finding(subject=subject, state="ok", said=said)


def _missing(subject: str, said: str, *, is_needed: bool = True) -> Finding:
    return Finding(subject=subject, state="missing" if is_needed else "optional", said=said)


# -- models ------------------------------------------------------------------------------------------------------------


async def _model(text: str) -> list[Finding]:
    spec = ModelSpec.parse(text)
    if spec.provider == "sim":
        profile_of(spec)
        return [_ok(text, "works without a key")]
    context = Context(run_id="doctor", seed=0, tasks=[], strategy=Strategy())
    model = await asyncio.to_thread(open_model, text, context)
    try:
        if spec.provider == PROVIDER:
            return [_ok(text, "works without a key")]
        if not isinstance(model, HttpModel):
            return [_ok(text, "can be opened; nothing more is known of it")]
        answer, served = await model.listed(), None
        is_asked = isinstance(answer, Response)
        if isinstance(model, OpenAIModel) and is_asked:
            served = await model.served_metrics()
        tried = await model.tried() if is_asked and model.failures.meant_url is not None else None
        if isinstance(tried, Response) and tried.status_code in NO_SUCH_PATH:
            said = f"{model.base_url} does not know {model.path}; did you mean base_url={model.failures.meant_url}"
            return [_missing(f"{text} endpoint", said)]
        return [*_of_provider(text, spec, model, answer), *_prefix_cache(text, served or b"")]
    finally:
        await model.close()


def _of_provider(text: str, spec: ModelSpec, model: HttpModel, answer: Answered) -> Iterator[Finding]:
    """Findings from the free list of models: key, address, model and clock."""
    place = model.base_url
    if isinstance(answer, ModelUnavailable):
        said = f"{place} cannot be reached: {answer.args[1]}; check the address and the network"
        yield _missing(f"{text} endpoint", said)
    elif (code := answer.status_code) in (401, 403):
        said = f"{place} refuses the key (HTTP {code}); set the environment variable to a valid one"
        yield _missing(f"{text} key", said)
    else:
        unlisted = f"has no list of models (HTTP {code}), so the key is not checked"
        taken = "takes the key" if model.has_key else "was asked without a key"
        yield _ok(f"{text} endpoint", f"{place} answers, and {taken if answer.is_success else unlisted}")
    yield _model_known(text, spec, answer, is_vendor=model.base_url == model.url)
    unpriced = "unknown, so --max-cost cannot be used; give price_in and price_out, or --prices"
    price = f"{text} price"
    yield _ok(price, "known") if model.priced else _missing(price, unpriced, is_needed=False)
    if isinstance(answer, Response):
        yield from _clock(answer.headers.get("date", ""))


def _prefix_cache(text: str, metrics: bytes) -> Iterator[Finding]:
    """Counts by vLLM of its cache of prefixes: votes on one prompt that reach one replica pay for its reading once."""
    counts = {name: re.findall(PREFIX_COUNTER % name, metrics) for name in (b"queries", b"hits")}
    found = {name: sum(map(float, several)) for name, several in counts.items()}
    if asked := found[b"queries"]:
        hint = "" if found[b"hits"] else "; behind a router of several replicas give session=prompt"
        share = f"{100 * found[b'hits'] / asked:.0f} % of {asked:,.0f} prompt tokens were read from it"
        yield _ok(f"{text} prefix cache", f"{share}{hint}")


def _model_known(text: str, spec: ModelSpec, answer: Answered, *, is_vendor: bool) -> Finding:
    subject, today = f"{text} model", datetime.now(UTC).date()
    capabilities = capabilities_of(spec.provider, spec.name)
    instead, listed = _instead(spec, today), models_in(answer)
    told = listed.get(spec.name, Listed())
    if told.is_retired:
        return _missing(subject, f"is retired, its provider says{instead}")
    if has_ended(capabilities, today) and spec.name not in listed:
        return _missing(subject, f"was shut down on {capabilities.shutdown}{instead}")
    if listed and spec.name not in listed:
        said = f"is not among the {len(listed)} models of the provider, such as {', '.join([*listed][:3])}{instead}"
        return _missing(subject, said, is_needed=is_vendor)  # some servers take any name
    if isinstance(answer, ModelUnavailable):
        return _missing(subject, "cannot be checked, since the endpoint cannot be reached")
    facts = ["is served" if listed else "is not checked", *told.facts]
    end = announced_end(spec, today, told.retires)
    if end is not None:
        facts.append(f"it {end}")
    return _ok(subject, "; ".join(facts))


def announced_end(spec: ModelSpec, today: date, told: date | None = None) -> str | None:
    """Say when the provider of a model ends it, and what takes its place; None if no end is announced.

    Args:
        spec: the model.
        today: the date.
        told: the end that the provider states; None if it states none, so that the table counts.
    """
    end = told or capabilities_of(spec.provider, spec.name).shutdown
    if end is None:
        return None
    if end < today:
        return f"is overdue to be shut down since {end}{_instead(spec, today)}"
    return f"will be shut down on {end}, in {(end - today).days} days{_instead(spec, today)}"


def _instead(spec: ModelSpec, today: date) -> str:
    near = nearest_model(spec.provider, spec.name, today)
    if not near:
        return ""
    return f"; today's nearest is {near}"


def _clock(sent: str) -> Iterator[Finding]:
    try:
        behind_s = (parsedate_to_datetime(sent) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return
    if abs(behind_s) <= MAX_CLOCK_S:
        yield _ok("clock", "agrees with the provider's")
    else:
        where = "behind" if behind_s > 0 else "ahead of"
        yield _missing("clock", f"is {abs(behind_s):.0f} s {where} the provider's; set it", is_needed=False)


async def _calls(text: str) -> list[Finding]:
    """Ask for one call of a tool: a native one, and if none comes, one in a text."""
    spec, subject = ModelSpec.parse(text), f"{text} calls"
    in_text = "calls" in spec.options
    said = await _said_for_call(text, in_text=in_text)
    if not said:
        return [_ok(subject, f"the model calls tools {'in its text' if in_text else 'natively'}")]
    as_text = f"{text}{',' if spec.options else '@'}calls=text"
    if not in_text and not await _said_for_call(as_text, in_text=True):
        return [
            _missing(subject, "the model calls tools in its text only; give calls=text in the spec", is_needed=False)
        ]
    return [_missing(subject, f"the model called no tool; it said {said!r:.80}", is_needed=False)]


async def _said_for_call(text: str, *, in_text: bool) -> str:
    """Ask for one call; returns the words of the model if it made none, else an empty text."""
    context = Context(run_id="doctor", seed=0, tasks=[], strategy=Strategy())
    model = await asyncio.to_thread(open_model, text, context)
    asked = Prompt(
        system="You call tools.",
        user=CALL_ASKED,
        tools=CALL_TOOLS,
        calls_as_text=f"{CALL_TOOLS}\n\n{instructions(Calls)}",
    )
    place = SampleId(election=ElectionId(path="0/doctor", question_digest=b""), seq=0)
    call = Call(id=place, prompt=asked, reply=Calls, temperature=None, max_output_tokens=MAX_CALL_TOKENS)
    try:
        sample = checked_sample(await model.complete(as_taken(call, model)), text)
    finally:
        await model.close()
    is_called = sample.turn is not None
    if in_text:
        is_called = malformed_reason(sample.text, Calls, "lines", "strict") is None
    return "" if is_called else sample.text or sample.finish


# -- this machine ------------------------------------------------------------------------------------------------------


def _key(provider: str) -> Finding:
    name = KEYS[provider]
    if os.environ.get(name, "").strip():
        return _ok(f"{provider} key", f"${name} is set; check it with --model {provider}:NAME")
    said = f"${name} is not set; set it to use {provider}:NAME, or give base_url for a server of your own"
    return _missing(f"{provider} key", said, is_needed=False)


def _open_files() -> Finding:
    try:
        return _ok("open files", f"enough for {connections_allowed():,} calls in flight to each model")
    except InvalidUsage as error:
        return _missing("open files", str(error))


def _ray(*, is_needed: bool) -> list[Finding]:
    address = os.environ.get("RAY_ADDRESS")
    if address is None:
        token = "with a token" if os.environ.get("RAY_AUTH_MODE") == "token" else "for this machine alone"
        return [_ok("Ray", f"is installed; --runtime ray starts one, {token}")]
    from microagents.runtimes.ray.cluster import probe  # noqa: PLC0415 - imports Ray, for a second

    try:
        probe(address, insecure=False)
    except InvalidUsage as error:
        return [_missing("Ray", str(error), is_needed=is_needed)]
    return [_ok("Ray", f"answers at {address}")]


def _disk(runs_dir: Path) -> list[Finding]:
    """Check the folder, or the nearest one above it that is there."""
    place, here = runs_dir.absolute(), repr(str(runs_dir))
    with suppress(OSError):
        place = next(each for each in (place, *place.parents) if is_there(each))
    if not (os.path.isdir(place) and os.access(place, os.W_OK)):
        return [_missing("disk", f"journals cannot be written into {here}; give another folder with --runs-dir")]
    free = shutil.disk_usage(place).free
    if free < LEAST_FREE_BYTES:
        said = f"{free / 2**20:,.0f} MB are free at {here}; make room, or give another folder with --runs-dir"
        return [_missing("disk", said)]
    return [_ok("disk", f"{free / 2**30:,.0f} GB are free at {here}")]
