"""The solver in parts: its models, its failed attempts, its accounts and leases of calls."""
