"""Draws of a server, compared with the probabilities that it gives them, and several of one request with single ones."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from itertools import combinations
from random import Random
from statistics import median

from microagents.base.errors import MicroagentsError
from microagents.elections.election import ElectionId, SampleId
from microagents.models.model import Call
from microagents.models.openai import OpenAIModel
from microagents.replies.chat import Prompt, Reply, Sample

DRAWS, SHUFFLES = 100, 1000
REQUESTS, CHOICES = 16, 4
TOGETHER = 4
"""Requests in flight."""
FAR = 3.5
"""Standard deviations from which a difference is not taken for chance."""
NATS = 0.3
"""Difference of two log-probabilities of one text that the shape of a batch and what is cached explain."""
LEAST_EXPECTED = 5
"""Number of draws that a text is expected in, at least, to be compared."""
QUESTION, OTHER = Prompt(system="Answer with one word.", user="yes or no?"), Prompt(user="Name a town in Italy.")


async def check_draws(model: OpenAIModel) -> list[tuple[bool, str]]:
    """Draw from a server, and report the findings: of masses first, then of several choices of a request. It takes about 180 short calls.

    Raises:
        ModelUnavailable: the server gives no reply.
    """
    slots = asyncio.Semaphore(TOGETHER)

    async def single(seq: int, prompt: Prompt) -> Sample:
        async with slots:
            return await model.complete(_call(seq, prompt))

    singles = await asyncio.gather(*[single(seq, QUESTION) for seq in range(DRAWS)])
    found = [_of_masses(singles)]
    model.most_with_masses = CHOICES
    beside = asyncio.gather(*[single(DRAWS + seq, OTHER) for seq in range(DRAWS)])
    try:
        requests = [
            [sample async for _, sample in model.complete_several([_call(seq, QUESTION)] * CHOICES)]
            for seq in range(REQUESTS)
        ]
    except MicroagentsError as error:  # such as more choices than the server has slots
        return [*found, (False, f"several votes a request are refused: {error}")]
    finally:
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)
        model.most_with_masses = 1
    return [*found, _of_several(singles, requests)]


def _call(seq: int, prompt: Prompt) -> Call:
    sample = SampleId(election=ElectionId(path=f"0/check/{seq}", question_digest=b""), seq=seq)
    return Call(id=sample, prompt=prompt, reply=Reply, temperature=1.0, max_output_tokens=4, needs_mass=True)


def _masses(samples: Sequence[Sample]) -> dict[str, list[float]]:
    """List the logarithms of the masses of each text."""
    found: dict[str, list[float]] = {}
    for each in samples:
        if each.mass is not None:
            found.setdefault(each.text, []).append(each.mass.log)
    return found


def _of_masses(samples: Sequence[Sample]) -> tuple[bool, str]:
    given, number = _masses(samples), len(samples)
    if not given:
        return False, "no probabilities of replies: there are no log-probabilities, or none of the end"
    if any(each.mass is not None and each.mass.law != "draw" for each in samples):
        return True, "probabilities of replies are given, before samplers: they bound how often a reply comes"
    # A few draws may be the same text in other, rarer tokens.
    p = {text: min(1.0, math.exp(median(logs))) for text, logs in given.items()}
    common = [text for text in p if number * p[text] >= LEAST_EXPECTED]
    farthest, said = 0.0, ""
    for texts in ([common] if len(common) > 1 else []) + [[text] for text in common]:
        share, came = min(1.0, math.fsum(p[text] for text in texts)), sum(len(given[text]) for text in texts)
        z = 2 * math.sqrt(number) * abs(math.asin(math.sqrt(came / number)) - math.asin(math.sqrt(share)))
        if z > farthest:
            named = " or ".join(map(repr, texts))
            farthest, said = z, f"{named:.60} came {came} times in {number} draws, by probability {number * share:.0f}"
    if farthest > FAR:
        return False, f"{said}; this server needs another `logprobs` in its spec: raw, processed or off"
    said = f"probabilities of replies are given, and match {number} draws ({len(common)} replies compared)"
    return True, f"{said}: `-s certain=on` can decide with one call"


def _of_several(singles: Sequence[Sample], requests: Sequence[Sequence[Sample]]) -> tuple[bool, str]:
    if min(map(len, requests)) < CHOICES:
        return False, f"gives fewer than {CHOICES} votes a request"
    choices = [each for request in requests for each in request]
    equal, random = _equal_pairs(choices), Random(0)  # noqa: S311 - no secret
    dealt = [_equal_pairs(random.sample([*choices, *singles], len(choices))) for _ in range(SHUFFLES)]
    if equal > max(dealt):
        usual = sum(dealt) / SHUFFLES
        return False, f"votes of one request repeat each other: {equal} equal pairs, if dealt at random {usual:.0f}"
    known = _masses(singles)
    told = [(each.mass.log, known[each.text]) for each in choices if each.mass is not None and each.text in known]
    strange = sum(not min(logs) - NATS <= log <= max(logs) + NATS for log, logs in told)
    if strange:
        said = f"beside a second client {strange} of {len(told)} votes of several a request have another probability"
        return False, f"{said} than alone, so single ones are used for it"
    return True, "several votes a request are independent, also beside a second client"


def _equal_pairs(choices: Sequence[Sample]) -> int:
    """Count the equal pairs in requests of `CHOICES`."""
    texts = [each.text for each in choices]
    requests = [texts[at : at + CHOICES] for at in range(0, len(texts), CHOICES)]
    return sum(one == other for request in requests for one, other in combinations(request, 2))
