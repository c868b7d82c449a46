"""The work on one input: durable calls, and the conductors that make them."""
