"""Installed packages: the version of this one, and packages that only some parts need."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from microagents.base.errors import InvalidUsage

REQUIREMENTS = {
    "ray": "ray grpcio",
    "grpc": "grpcio",
    "openai": "'openai[aiohttp]'",
    "anthropic": "'anthropic[aiohttp]'",
    "aiohttp": "aiohttp",
    "genai_prices": "genai-prices",
    "matplotlib": "matplotlib",
    "mcp": "mcp google-re2",
    "re2": "google-re2",
}
"""Arguments of `pip install` for modules that only some parts need, if they differ from the name. Ray's dashboard is not among them."""


def installed_version() -> str:
    """Read the version of this package."""
    try:
        return version("microagents-ray")
    except PackageNotFoundError:
        return "unknown"


def require_packages(needed_by: str, *modules: str) -> None:
    """Check that modules of `REQUIREMENTS` are installed, without importing them.

    Raises:
        InvalidUsage: one is not. The message names the package to install.
    """
    for module in modules:
        if find_spec(module) is None:
            raise missing_package(needed_by, module)


def missing_package(needed_by: str, module: str) -> InvalidUsage:
    """Return the error for a module that is not installed."""
    given = REQUIREMENTS.get(module, module)
    return InvalidUsage(f"{needed_by} needs a package that is not installed, {module}; install it: pip install {given}")
