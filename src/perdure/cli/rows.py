"""Rows under headings, for people: one line each, or several where the terminal is too narrow for that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

GAP = 2
INDENT = 4
LAST_COLUMN = 30
"""The last column is text that may be wrapped: it stays beside the others where it has at least this width."""


class Rows:
    """Rows of cells. Where a row does not fit into the terminal, it goes on in further lines, which are indented.

    Nothing is cut, and only the last cell is wrapped (and what is wider than the whole terminal): ids stay whole.
    """

    def __init__(self, *headings: str) -> None:
        self.headings = [Text(heading, style="bold") for heading in headings]
        self.rows: list[Sequence[Text]] = []

    def add(self, *cells: str | Text) -> None:
        """Add a row: a cell for each heading."""
        self.rows.append([cell if isinstance(cell, Text) else Text(cell) for cell in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        every = [self.headings, *self.rows]
        widths = [max(map(_width, cells)) for cells in zip(*every, strict=True)]
        lines = _lines(widths, options.max_width)
        for row in every:
            yield from _line(console, row, widths, lines[0], options.max_width)
            for line in lines[1:]:
                if any(row[column].plain for column in line):
                    yield from _line(console, row, widths, line, options.max_width, INDENT)


def _width(cell: Text) -> int:
    return max(map(cell_len, cell.plain.split("\n")))


def _lines(widths: Sequence[int], room: int) -> list[list[int]]:
    """Which columns stand side by side: as many as fit, then those that fit into the next, indented line."""
    lines: list[list[int]] = [[]]
    used = 0
    for column, width in enumerate(widths):
        needed = min(width, LAST_COLUMN) if column == len(widths) - 1 else width
        if lines[-1] and used + needed > room:
            lines.append([])
            used = INDENT
        lines[-1].append(column)
        used += needed + GAP
    return lines


def _line(
    console: Console, row: Sequence[Text], widths: Sequence[int], columns: Sequence[int], room: int, indent: int = 0
) -> RenderResult:
    """Some columns of a row, side by side; the last of them takes the room that is left."""
    *others, last = columns
    cells = [row[column] for column in columns]
    left = room - indent - sum(widths[column] + GAP for column in others)
    if _width(row[last]) <= left and all(map(_simple, cells)):
        yield from _written(console, cells, [widths[column] for column in others], indent)
        return
    grid = Table.grid(padding=(0, GAP, 0, 0))
    for column in columns:
        grid.add_column(overflow="fold", no_wrap=column != last, min_width=None if column == last else widths[column])
    grid.add_row(*cells)
    yield Padding(grid, (0, 0, 0, indent), expand=False) if indent else grid


def _simple(cell: Text) -> bool:
    """Whether it is shown as it is, in one style."""
    return not cell.spans and "\t" not in cell.plain


def _written(console: Console, cells: Sequence[Text], widths: Sequence[int], indent: int) -> Iterator[Segment]:
    """A row whose cells need not be wrapped: Rich would take many times as long to measure and divide each."""
    styles = [console.get_style(cell.style) if cell.style else None for cell in cells]
    for line in zip_longest(*(cell.plain.split("\n") for cell in cells), fillvalue=""):
        yield Segment(" " * indent)
        for told, style, width in zip(line, styles, widths, strict=False):
            yield Segment(told, style)
            yield Segment(" " * (width - cell_len(told) + GAP))
        yield Segment(line[-1], styles[-1])
        yield Segment.line()
