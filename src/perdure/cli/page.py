"""A page: what a verb prints, for people or, as JSON, for programs."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from rich.console import Console, RenderableType

from perdure.cli.line import safe_json

_UNBOUNDED = 10_000


def console(*, error: bool = False) -> Console:
    """Where pages are printed: as wide as the terminal, unbounded where a program reads."""
    stream = sys.stderr if error else sys.stdout
    return Console(stderr=error, width=None if stream.isatty() else _UNBOUNDED, highlight=False, markup=False)


def show(*parts: RenderableType) -> None:
    """Print parts of a page below each other."""
    page = console()
    for part in parts:
        page.print(part)


def show_json(value: Any) -> None:
    """Print a value as JSON, indented for the eye that looks nevertheless."""
    print(safe_json(msgspec.json.format(msgspec.json.encode(value))))
