"""The parts of `tests.benchmarks.providers`, one file each."""
