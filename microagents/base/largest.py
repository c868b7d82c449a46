"""Largest limits of calls and tokens, of cost, and of time: products with them fit 64 bits, as messages and journals need."""

MAX_COUNT, MAX_USD, MAX_S = 10**15, 1e9, 1e9
