"""The tests of pages run commands, so they start as those of commands do."""

from tests.cli.conftest import as_after_login

__all__ = ["as_after_login"]
