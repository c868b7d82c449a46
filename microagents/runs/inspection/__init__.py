"""Inspection of a run by its journal, also while it is under way."""
