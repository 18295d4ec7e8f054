"""The output of a verb, for people or, as JSON, for programs."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment

from perdure.cli.plain_output import escaped, safe_json

_UNBOUNDED = 10_000


def console(*, error: bool = False) -> Console:
    """Where pages are printed: as wide as the terminal, unbounded where a program reads."""
    stream = sys.stderr if error else sys.stdout
    return Console(stderr=error, width=None if stream.isatty() else _UNBOUNDED, highlight=False, markup=False)


class _Harmless:
    """A part of the output, of which nothing that is stored can steer the terminal."""

    def __init__(self, part: RenderableType) -> None:
        self._part = part

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._part, options):
            yield segment if segment.control else Segment(escaped(segment.text), segment.style)


def show(*parts: RenderableType) -> None:
    """Print the parts of an output below each other."""
    target = console()
    for part in parts:
        target.print(_Harmless(part))


def carried(value: Any) -> Any:
    """What is only carried, see :mod:`perdure.kernel.stored`, as the plain value that it stands for."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    raise NotImplementedError(f"{type(value).__name__} has no place in JSON")


def show_json(value: Any) -> None:
    """Print a value as JSON, indented for the eye that looks nevertheless."""
    print(safe_json(msgspec.json.format(msgspec.json.encode(value, enc_hook=carried))))
