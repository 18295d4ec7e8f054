"""What a command prints: parts of a page for people, or JSON for programs."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment

from perdure.cli.plain_output import columns, safe_json
from perdure.kernel.failure import escaped

_UNBOUNDED = 10_000


class PageConsole(Console):
    """A console that lets the command end as :func:`perdure.cli.app.run` says when the reader of its output has ended.

    Rich itself would end the program with exit code 1.
    """

    def on_broken_pipe(self) -> None:
        """Raise again the BrokenPipeError that is under way."""
        raise  # Rich calls this where it has caught the error


def console(*, error: bool = False) -> Console:
    """Where pages are printed: as wide as the terminal, without a limit where a program reads them."""
    width = columns(sys.stderr if error else sys.stdout) or _UNBOUNDED
    if error:
        return Console(stderr=True, width=width, highlight=False, markup=False)
    return PageConsole(width=width, highlight=False, markup=False)


class _Harmless:
    """A part of a page in which no stored text can steer the terminal."""

    def __init__(self, part: RenderableType) -> None:
        self._part = part

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._part, options):
            yield segment if segment.control else Segment(escaped(segment.text), segment.style)


def harmless(part: RenderableType) -> RenderableType:
    """The part of a page with all stored text made harmless."""
    return _Harmless(part)


def show(*parts: RenderableType) -> None:
    """Print the parts of an output below each other."""
    target = console()
    for part in parts:
        target.print(_Harmless(part))


def carried(value: Any) -> Any:
    """A value of a type that this release does not know (see :mod:`perdure.kernel.stored`) as a plain one."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    raise NotImplementedError(f"{type(value).__name__} has no place in JSON")


def show_json(value: Any) -> None:
    """Print a value as JSON, indented for people who read it all the same."""
    print(safe_json(msgspec.json.format(msgspec.json.encode(value, enc_hook=carried))))
