"""Several runs of one task, and what to expect of one: comparisons, measurements, plans, simulations, the preview of a step."""
