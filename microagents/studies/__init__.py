"""Several runs of one task, and the expectations of one: comparisons, measurements, plans, simulations, the preview of a step."""
