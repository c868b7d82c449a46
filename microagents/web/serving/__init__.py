"""An HTTP endpoint that speaks the wires of model providers, backed by any model."""
