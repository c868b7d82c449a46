"""Installed packages: the version of this one, and the extras that only some parts need."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from microagents.base.errors import InvalidUsage

PACKAGES = {"mcp": "mcp jsonschema-rs", "jsonschema_rs": "jsonschema-rs"}
"""Arguments of `pip install` for modules of extras, if they differ from the name."""


def installed_version() -> str:
    """Read the version of this package."""
    try:
        return version("microagents-ray")
    except PackageNotFoundError:
        return "unknown"


def require_package(needed_by: str, module: str) -> None:
    """Check that a module of an extra is installed, without importing it; the error names the package to install."""
    if find_spec(module) is None:
        raise missing_package(needed_by, module)


def missing_package(needed_by: str, module: str) -> InvalidUsage:
    """Return the error for a module that is not installed."""
    given = PACKAGES.get(module, module)
    return InvalidUsage(f"{needed_by} needs a package that is not installed, {module}; install it: pip install {given}")
