"""Recorded work as text for the terminal."""
