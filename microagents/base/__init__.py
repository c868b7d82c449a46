"""Foundations: errors, structured concurrency, messages, files, users' code."""
