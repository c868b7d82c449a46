"""The lock of all who parse Python sources."""

from threading import RLock

PARSING = RLock()
"""Before Python 3.12.5 threads that parse at once count one depth together, and one of them may raise a `SystemError` (gh-106905)."""
