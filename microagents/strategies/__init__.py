"""Strategies: which elections to hold. One file per paper's system: its settings, then its conductor."""

from microagents.strategies.maker import Maker
from microagents.strategies.recursive import Recursive

__all__ = ["Maker", "Recursive"]
