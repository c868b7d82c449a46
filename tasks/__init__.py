"""Work that ships; imported as ``microagents.tasks``."""
