"""What a journal tells of a run, also while it is under way."""
