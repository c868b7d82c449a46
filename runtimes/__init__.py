"""Where roles live; imported as ``microagents.runtimes``."""
