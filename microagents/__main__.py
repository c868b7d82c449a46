"""``python -m microagents``."""

from microagents.cli import main

main()
