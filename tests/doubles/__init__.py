"""Doubles of what stands outside: providers that speak the wires over real HTTP."""
