"""The solver in parts: its models, its failed attempts, its accounts and permits of calls."""
