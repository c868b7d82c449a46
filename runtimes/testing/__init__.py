"""Runtimes for tests: virtual time, and links that lose messages."""
