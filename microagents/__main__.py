"""``python -m microagents``."""

from microagents.cli import main

if __name__ == "__main__":
    main()
