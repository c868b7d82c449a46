"""Runtimes that carry roles; imported as ``microagents.runtimes``."""
