"""The bounds of a run, and how they are dealt out to the solvers."""
