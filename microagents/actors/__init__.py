"""What a role, a strategy and a registry are."""
