"""What a journal says of a run, also while it is under way."""
