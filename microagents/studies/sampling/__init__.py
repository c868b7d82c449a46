"""Strategies that only sample: calibrations, studies, and how often draws agree."""
