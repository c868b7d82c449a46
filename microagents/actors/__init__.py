"""Roles, strategies and registries."""
