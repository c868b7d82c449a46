"""Chains of steps: MAKER, LEAD, the ladder, and speculation."""
