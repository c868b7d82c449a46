"""Several runs of one task, and what to expect of one: comparisons, studies, calibrations, plans, simulations, the preview of a step."""
