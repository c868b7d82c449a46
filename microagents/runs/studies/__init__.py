"""Several runs of one task: comparisons, studies, and the preview of a step."""
