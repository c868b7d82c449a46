"""Long tasks by language models without an error: every micro-decision is an election."""

from lazy_loader import attach_stub as _attach_stub

from microagents.base import interrupts as _interrupts  # noqa: F401 - first of all: the other imports take most of a second

# Of the names in __init__.pyi each is imported when it is first used, so that a command imports only the modules that it needs.
__getattr__, __dir__, __all__ = _attach_stub(__name__, __file__)
