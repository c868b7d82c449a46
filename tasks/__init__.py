"""Tasks that ship with the package; imported as ``microagents.tasks``."""
