"""Strategies: which elections to hold. One file per paper's system: its settings, then its conductor."""

from microagents.strategies.maker import Maker

__all__ = ["Maker"]
