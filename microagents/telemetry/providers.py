"""Start of the telemetry of a run: there is none, and nothing is imported, unless the user's program has configured a provider."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from microagents.telemetry.exporting import Telemetry


def is_configured(signal: str) -> bool:
    """Whether the user's program has configured a provider for ``trace`` or ``metrics``. It must have imported the API for that."""
    api = sys.modules.get(f"opentelemetry.{signal}")
    if api is None:
        return False
    provider = api.get_tracer_provider() if signal == "trace" else api.get_meter_provider()
    return not type(provider).__module__.startswith(f"opentelemetry.{signal}")


def telemetry_of(run_id: str, task: str, models: Sequence[str], share: float) -> Telemetry | None:
    """Return the telemetry of a run; None if no provider is configured."""
    has_metrics = is_configured("metrics")
    if not (has_metrics or is_configured("trace")):
        return None
    from microagents.telemetry.exporting import Telemetry  # noqa: PLC0415 - imports OpenTelemetry's API

    return Telemetry(run_id, task, models, share, has_metrics=has_metrics)
