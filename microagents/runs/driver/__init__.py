"""A run in the driver's process: begin it, execute it, end it."""
