"""Roles as Ray actors."""
