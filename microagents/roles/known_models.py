"""Facts about the models of a run that decide how a voter asks for samples."""

from __future__ import annotations

from microagents.actors.role import Context
from microagents.base.errors import InvalidUsage
from microagents.journal.messages import Conditions
from microagents.models.model import SEVERAL_AT_ONCE, most_samples


class KnownModels:
    """Facts about the models of a run: from their specs, and from the conditions of the run.

    Args:
        context: the run.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._most: dict[str, int] = {}
        """Number of samples of a request, by the spec."""
        self._conditions = Conditions()

    def take(self, conditions: Conditions) -> None:
        """Take over the conditions of the run."""
        self._conditions = conditions

    def is_doubted(self, spec: str) -> bool:
        """Whether the masses of a model do not hold, so that they decide nothing."""
        return spec in self._conditions.doubted and self._context.strategy.certain != "off"

    def samples_at_once(self, spec: str) -> int:
        """Return the number of samples that one request to a model can ask for."""
        if SEVERAL_AT_ONCE in self._conditions.refused.get(spec, ()):
            return 1
        if spec not in self._most:
            try:
                self._most[spec] = most_samples(spec, self._context)
            except InvalidUsage:  # a strategy may deploy another solver, which alone knows its models
                self._most[spec] = 1
        return self._most[spec]

    def temperature(self, spec: str, asked: float | None) -> float | None:
        """Return the temperature of a draw, None from a model that refuses any."""
        if "temperature" in self._conditions.refused.get(spec, ()):
            return None
        return asked
