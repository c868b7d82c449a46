"""Sentences and figures about a run, as the command line, `print(result)` and reports say them."""
