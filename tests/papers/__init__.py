"""The tables and figures of five papers, made again: ``python -m tests.papers``."""
