"""The models of one solver replica, its experience with each, and which one is asked while another is out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from msgspec import structs

from microagents.actors.registry import MODELS
from microagents.actors.role import Context
from microagents.base.aio import Slots
from microagents.base.errors import InvalidUsage, ModelUnavailable
from microagents.base.logs import log
from microagents.elections.election import Draw
from microagents.models.latencies import Latencies
from microagents.models.model import SEVERAL_AT_ONCE, Call, Model, checked_model, open_model
from microagents.models.weighing import at_least
from microagents.roles.solver.call_accounts import Prices
from microagents.roles.solver.health import Health

REPLACED_SHARE = 0.2
"""Largest share of calls to a model that are sent again as stragglers: if more are slow, the model is, and more calls do not help."""


class Backend:
    """A model, and the experience of this replica with it."""

    def __init__(self, model: Model, spec: str = "", on_out: Callable[[ModelUnavailable], None] | None = None) -> None:
        self.model = model
        self.spec = spec
        self.throttled_as = model.throttled_as
        """Name under which all solvers of the run share a throttle for it; None for no throttle."""
        if self.throttled_as == "":
            self.throttled_as = None if model.answers_at_once else spec  # at once, one call is in flight at a time
        self.reported_refusals = 0
        """Number of refused parameters that the journal knows."""
        self.has_reported_limits = False
        """Whether the journal knows the limits of its provider."""
        self.slots = None if model.max_in_flight is None else Slots(model.max_in_flight)
        """Its connections; None if it takes any number of calls at a time."""
        self.answers_at_once = model.answers_at_once
        self.latencies = Latencies()
        self.prices = Prices()
        self.health = Health(asyncio.get_running_loop(), on_out)
        self.is_refused_several = False
        """Whether a request for several samples was refused."""
        self.most_given = 1
        """The largest number of samples that a request was answered with."""
        self.replaced = 0
        """Number of its calls that were sent again as stragglers."""
        self._has_told_flaw = False

    def warn_of_usage(self, flaw: str) -> None:
        """Tell once that the model states a usage that cannot be right."""
        if not self._has_told_flaw:
            self._has_told_flaw = True
            log().warning(
                "the usage of a reply cannot be right: such calls count at their most", model=self.spec, usage=flaw
            )

    @property
    def in_flight(self) -> int:
        """Number of its calls that are sent and have not ended; those in batches are counted with their batches."""
        if self.model.batches is None:
            return self.health.in_flight
        return self.model.batches.sent_singly

    def fitting(self, call: Call) -> Call:
        """Return a call with as many samples as a request may ask for."""
        if call.samples == 1 or call.samples <= self._max_samples:
            return call
        return structs.replace(call, samples=self._max_samples)

    @property
    def _max_samples(self) -> int:
        if self.is_refused_several or SEVERAL_AT_ONCE in self.model.refused:
            return 1
        return self.model.max_samples

    def refuses_several(self, call: Call, error: ModelUnavailable) -> bool:
        """Whether an error may be a refusal of several samples at a time."""
        if call.samples == 1 or error.retryable or self.health.is_out:
            return False
        return not (
            error.is_of_content and call.samples <= self.most_given
        )  # else all samples of the question are refused alike

    @property
    def straggler_s(self) -> float | None:
        """Duration from which a call should be sent again; None while none should."""
        if self.replaced > REPLACED_SHARE * self.latencies.count:
            return None
        return self.latencies.straggler_s


class Backends:
    """Models of a run by spec, each opened on first use.

    Args:
        context: the run.
        on_unpriced: called when a model is opened whose price is unknown, so that the cost of the run is.
    """

    def __init__(self, context: Context, on_unpriced: Callable[[], None]) -> None:
        self._context = context
        self._on_unpriced = on_unpriced
        self.fallbacks = context.models.get("fallback", ())
        """Models that are asked while another one is out."""
        self._opened: dict[str, Backend] = {}

    def __iter__(self) -> Iterator[Backend]:
        """Iterate over the open ones."""
        return iter(self._opened.values())

    def open_all(self) -> None:
        """Open every model of the run."""
        for pool in self._context.models.values():
            for spec in pool:
                self.of(spec)

    async def close(self) -> None:
        """Close all models."""
        for backend in self:
            backend.health.close()
            await backend.model.close()

    def refuse(self, refused: Mapping[str, Mapping[str, str | None]]) -> None:
        """Leave out the parameters that an earlier sitting found refused, by spec."""
        for spec, parameters in refused.items():
            if spec in self._opened:
                self._opened[spec].model.refuse(parameters)

    def note_outage(self, throttle: str, out_s: float | None) -> None:
        """Note the limiter's knowledge from the calls of all replicas, since this one may have none that could fail.

        Args:
            throttle: the part that the provider throttles as one.
            out_s: time since which it is out; None once it delivers.
        """
        for backend in self:
            if backend.throttled_as != throttle:
                continue
            if out_s is None:
                backend.health.delivered()
            else:
                backend.health.failed(ModelUnavailable("network", "the calls of other solvers fail"), out_s)

    def delivering(self, spec: str) -> Backend:
        """Return the model of a spec, or the first of its fallbacks that delivers while it is out."""
        if not self.fallbacks:
            return self.of(spec)
        return self.one_that_delivers(spec) or self.of(spec)

    def one_that_delivers(self, spec: str) -> Backend | None:
        """Return the same; None while none delivers."""
        backend = self.of(spec)
        if not self.fallbacks or backend.health.may_be_asked():
            return backend
        return next((other for other in self._alike(spec) if other.health.may_be_asked()), None)

    def is_replaceable(self, backend: Backend) -> bool:
        """Whether a fallback of the model delivers."""
        return any(not other.health.is_out for other in self._alike(backend.spec))

    def substitute_of(self, backend: Backend, request: Draw) -> Backend:
        """Return the model that is asked if a call takes too long: the next one of the pool, if the call is not one to a fallback."""
        if request.substitute and backend.spec == request.model:
            return self.of(request.substitute)
        return backend

    def _alike(self, spec: str) -> list[Backend]:
        """Return the fallbacks that weigh options if the model does, and vote if it votes."""
        return [self.of(each) for each in self.fallbacks if each != spec and at_least((each,)) == at_least((spec,))]

    def of(self, spec: str) -> Backend:
        """Return the model of a spec.

        Raises:
            InvalidUsage: there is none, or its price is unknown and the cost of the run is limited.
        """
        return self._opened.get(spec) or self._open(spec)

    def _open(self, spec: str) -> Backend:
        model = checked_model(open_model(spec, self._context), spec)
        if self._context.settings.get("batch") and model.batches is None and spec not in self.fallbacks:
            raise InvalidUsage(
                f"{spec} has no batches; leave --batch out, or give @batch=file in the specs of the models that have them"
            )
        opened = self._opened[spec] = Backend(model, spec, partial(_warn_out, spec) if self.fallbacks else None)
        if not model.priced:
            self._check_unlimited(spec)
            if spec not in self.fallbacks:  # of a fallback only once it is asked
                self._on_unpriced()
        return opened

    def _check_unlimited(self, spec: str) -> None:
        max_cost_usd = self._context.settings.get("max_cost_usd")
        if max_cost_usd is None:
            return
        if spec in self._context.model_objects:
            raise InvalidUsage(
                f"the price of {spec!r} is unknown, so max_cost_usd={max_cost_usd:g} cannot be kept; give a client's model its "
                "price, client_model(..., price_in='1', price_out='6') or prices={'PROVIDER:MODEL': ...}, or your own model or function "
                "priced = True and costs with its samples; or lift the limit, max_cost_usd=None"
            )
        if spec.partition(":")[0] not in MODELS.addresses:
            raise InvalidUsage(
                f"the price of {spec!r} is unknown, so --max-cost {max_cost_usd:g} cannot be kept; give the class or function "
                "priced = True, and its samples usage.cost_usd; or lift the limit, --max-cost inf"
            )
        raise InvalidUsage(
            f"the price of {spec!r} is unknown, so --max-cost {max_cost_usd:g} cannot be kept; give the price in the spec, "
            "@price_in=...,price_out=..., or in a file, --prices FILE; or lift the limit, --max-cost inf"
        )


def _warn_out(spec: str, error: ModelUnavailable) -> None:
    log().warning("a model is out, and its fallback is asked", model=spec, error=str(error))
