"""Models: one file per provider, and what they share."""
