"""The screen: what the demonstration shows while it runs, live on a terminal, line by line elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from examples.shop.staff import Hand

STATES = {"starting": "dim", "working": "green", "killed": "bold red", "stopped": "bold yellow"}
SPEAK_EVERY_SECONDS = 2.0
PIPE_WIDTH = 120


class Screen:
    """Two bars, the workers, and what has happened so far."""

    def __init__(self, orders: int, hands: Callable[[], list[Hand]], monotonic: Callable[[], float]) -> None:
        self.console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
        self.hands = hands
        self.monotonic = monotonic
        self.began = monotonic()
        self.spoken = self.began
        self.said: list[Text] = []
        columns = TextColumn("{task.description:<10}"), BarColumn(40), MofNCompleteColumn(), TimeElapsedColumn()
        self.bars = Progress(*columns, console=self.console)
        self.submitted = self.bars.add_task("submitted", total=orders)
        self.ended = self.bars.add_task("finished", total=orders)
        self.live = Live(get_renderable=self._page, console=self.console, refresh_per_second=8, transient=False)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def say(self, words: str, style: str = "") -> None:
        """Tell something that happened."""
        line = Text.assemble((f"{self.monotonic() - self.began:5.1f} s  ", "dim"), (words, style))
        self.said.append(line)
        if not self.console.is_terminal:
            self.console.print(line)

    def advance(self, submitted: int, ended: int, statuses: dict[str, int]) -> None:
        """Show how far it has come."""
        self.bars.update(self.submitted, completed=submitted)
        self.bars.update(self.ended, completed=ended)
        if not self.console.is_terminal and self.monotonic() - self.spoken >= SPEAK_EVERY_SECONDS:
            self.spoken = self.monotonic()
            told = ", ".join(f"{number:,} {status}" for status, number in sorted(statuses.items()))
            self.say(f"{submitted:,} submitted; {told}")

    def _page(self) -> RenderableType:
        staff = Table.grid(padding=(0, 3))
        states = [(f"worker {hand.number}: ", (hand.state, STATES[hand.state])) for hand in self.hands()]
        staff.add_row(*(Text.assemble(*state) for state in states))
        return Group(self.bars, staff, *self.said)
