"""Telemetry: traces and totals of runs, for the tools of the house that watches them."""
