"""The version of the installed package."""

from __future__ import annotations


def version() -> str:
    """The version, or a word that says that the code runs without having been installed."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as _installed

    try:
        return _installed("perdure")
    except PackageNotFoundError:
        return "not installed"
