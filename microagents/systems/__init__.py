"""Systems: a folder for each, with its kind of work, its questions, its prompts, its roles and its strategy."""

from lazy_loader import attach_stub as _attach_stub

# A program needs one or two of them.
__getattr__, __dir__, __all__ = _attach_stub(__name__, __file__)
