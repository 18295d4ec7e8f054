"""Rows under headings, for people: one line each, or several where the terminal is too narrow for that."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
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
        widths = [max(map(_width, cells)) for cells in zip(self.headings, *self.rows, strict=True)]
        lines = _lines(widths, options.max_width)
        if len(lines) == 1:
            yield _line([self.headings, *self.rows], widths, lines[0])
            return
        for row in (self.headings, *self.rows):
            yield _line([row], widths, lines[0])
            for line in lines[1:]:
                if any(row[column].plain for column in line):
                    yield Padding(_line([row], widths, line), (0, 0, 0, INDENT), expand=False)


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


def _line(rows: Sequence[Sequence[Text]], widths: Sequence[int], columns: Sequence[int]) -> Table:
    """Some columns of the rows, side by side; the last of them takes the room that is left."""
    grid = Table.grid(padding=(0, GAP, 0, 0))
    for column in columns:
        last = column == columns[-1]
        grid.add_column(overflow="fold", no_wrap=not last, min_width=None if last else widths[column])
    for row in rows:
        grid.add_row(*(row[column] for column in columns))
    return grid
