"""Runs in the browser: a server on loopback, and its pages in `static`."""
