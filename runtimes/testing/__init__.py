"""The engine under test: virtual time, and links that lose messages."""
