"""Models that need no key: simulated and scripted ones."""
