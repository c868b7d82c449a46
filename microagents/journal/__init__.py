"""The durable record of a run: one SQLite file, one process that writes it, any number that look on."""
