"""Trained models that ship with the package: small transformers, each of one kind of step."""
