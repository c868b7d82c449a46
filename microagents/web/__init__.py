"""Servers on a port: the viewer and the endpoint."""
