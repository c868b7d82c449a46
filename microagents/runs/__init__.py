"""Runs: begin, resume, inspect, compare."""
