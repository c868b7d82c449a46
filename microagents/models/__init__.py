"""Models: one file per provider, and their shared parts."""
