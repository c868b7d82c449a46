"""Bills: the range of a call's cost, the pace that a provider allows, and the facts about a model that bear on a plan."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from math import ceil

from msgspec import Struct

from microagents.actors.registry import MODELS
from microagents.base.user_code import called
from microagents.models.capabilities import UNKNOWN, capabilities_of
from microagents.models.model import MAX_SAMPLES, SEVERAL, Model, ModelSpec
from microagents.models.prices import Tariff, flat_tariff
from microagents.models.rates import INPUT_TOKENS, OUTPUT_TOKENS, REQUESTS, TOKENS
from microagents.models.simulation.profiles import profile_of
from microagents.replies.chat import Usage, system_with_instructions
from microagents.runs.doctor import announced_end
from microagents.runs.words.money import SIMULATED
from microagents.studies.measured import ModelMeasurement
from microagents.task import Task

CHARS_PER_TOKEN = 4
FLEX = "flex"


class Bill(Struct, frozen=True, kw_only=True):
    """Cost of a vote in US dollars; None if it is unknown."""

    low: float | None
    """With the prompt cache, the half-price tier and several votes for one prompt, as far as the provider has them."""
    mid: float | None
    """As measured in the samples."""
    high: float | None
    """Without any cache."""


class Terms:
    """Terms on which a provider serves a measured model.

    Args:
        found: the measurement.
        task: the task that is planned; None if its prompts are unknown.
    """

    def __init__(self, found: ModelMeasurement, task: Task | None) -> None:
        self._found = found
        spec = self._spec = ModelSpec.parse(found.model)
        is_simulated = found.model.startswith(SIMULATED)
        is_vendors = not is_simulated and "base_url" not in spec.options
        is_known = is_vendors and spec.provider in MODELS.addresses
        self._capabilities = capabilities_of(spec.provider, spec.name) if is_known else UNKNOWN
        self._constant_tokens = _constant_tokens(task)
        self._tariff = _tariff(spec, found, is_simulated=is_simulated)
        can_flex = is_vendors and spec.provider in ("openai", "openai-responses")
        self._has_flex = can_flex and "service_tier" not in spec.options
        most = MAX_SAMPLES if is_simulated else self._capabilities.max_choices or 1
        if spec.provider in ("sim", "openai") and SEVERAL not in spec.options:
            self._most_votes = most
        else:
            self._most_votes = 1
        self._read, self._written = [
            tokens / max(1, found.calls) for tokens in (found.input_tokens, found.output_tokens)
        ]
        floor = self._capabilities.cache_floor
        is_cached = floor is not None and self._constant_tokens >= floor
        self._cached_tokens = min(self._read, self._constant_tokens) if is_cached else 0.0

    def bill(self, votes: int) -> Bill:
        """Return the cost of a vote when ``votes`` are asked for at once."""
        mid = self._found.call_usd
        if mid is None or self._tariff is None:
            return Bill(low=mid, mid=mid, high=mid)
        # The first vote is asked for by itself, so that it can open the next step.
        prompts = (1 + ceil((votes - 1) / self._most_votes)) / votes
        read, written, cached = self._read, round(self._written), self._cached_tokens
        cheap = Usage(input_tokens=round(prompts * read), output_tokens=written, cached_tokens=round(prompts * cached))
        plain = Usage(input_tokens=round(read), output_tokens=written)
        low = self._tariff.cost_usd(cheap, FLEX if self._has_flex else None)
        high = self._tariff.cost_usd(plain)
        return Bill(low=mid if low is None else min(low, mid), mid=mid, high=mid if high is None else max(high, mid))

    def least_s(self, calls: float) -> tuple[float, str]:
        """Return the least duration of the calls under the provider's limits, and the limit that makes it; 0 for none."""
        of_call = {
            REQUESTS: 1.0,
            TOKENS: self._read + self._written,
            INPUT_TOKENS: self._read,
            OUTPUT_TOKENS: self._written,
        }
        limits = self._found.limits.items()
        return max(
            [(60 * calls * of_call[name] / most, name) for name, most in limits if name in of_call], default=(0.0, "")
        )

    def notes(self, today: date) -> Iterator[str]:
        """List the assumptions of a plan: those of the low cost, a prompt below the threshold of the cache, and an announced end."""
        floor, saves = self._capabilities.cache_floor, []
        if self._has_flex and self._tariff is not None:
            saves.append("service_tier=flex, at half the price")
        if self._most_votes > 1:
            saves.append(f"{SEVERAL}=auto, which pays a prompt once for several votes")
        if self._cached_tokens:
            saves.append(f"a cache that holds the {self._constant_tokens:,} constant tokens of a prompt")
        if saves:
            yield f"the low cost counts on {' and '.join(saves)}"
        if floor is not None and self._constant_tokens < floor:
            yield (
                f"the {self._constant_tokens:,} constant tokens of a prompt are below the {floor:,} from which on the provider caches, so "
                "no cache makes it cheaper"
            )
        end = announced_end(self._spec, today)
        if end is not None and self._capabilities is not UNKNOWN:
            yield f"the model {end}"


def _tariff(spec: ModelSpec, found: ModelMeasurement, *, is_simulated: bool) -> Tariff | None:
    if is_simulated:
        options = {name: text for name, text in spec.options.items() if name != SEVERAL}
        profile = profile_of(ModelSpec(provider=spec.provider, name=spec.name, options=options))
        return flat_tariff(profile.price_in, profile.price_out)
    if spec.provider not in MODELS.addresses:
        return None
    return MODELS.find(spec.provider, Model).tariff(spec, found.prices)


def _constant_tokens(task: Task | None) -> int:
    if task is None:
        return 0
    asked, reply = called(task.first_prompt), type(task).reply_type()
    if asked is None or reply is None:
        return 0
    system = system_with_instructions(asked.system, reply, task.format, task.reasoning)
    return len(system + asked.user_parts[0]) // CHARS_PER_TOKEN
