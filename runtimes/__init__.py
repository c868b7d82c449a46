"""Runtimes that carry roles; imported as ``microagents.runtimes``."""

from microagents.runtimes.local import LocalRuntime
from microagents.runtimes.runtime import Runtime

__all__ = ["LocalRuntime", "Runtime"]
