"""Roles in Ray actors."""
