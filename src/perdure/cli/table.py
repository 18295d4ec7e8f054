"""A table: processes or events in rows, for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from rich.table import Table
from rich.text import Text

from perdure.cli import event_text, text
from perdure.client.view import ProcessView, instant
from perdure.kernel.event import Event
from perdure.kernel.message import Message
from perdure.kernel.process import Status

COLOURS = {
    Status.RUNNING: "cyan",
    Status.HELD: "yellow",
    Status.BROKEN: "bold red",
    Status.COMPLETED: "green",
    Status.FAILED: "red",
    Status.CANCELLED: "magenta",
}


def empty(*columns: str, last_wraps: bool = True) -> Table:
    """A table without frames; a column that does not fit is folded, never cut."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=last_wraps and column is not columns[-1])
    return table


def of_processes(views: Sequence[ProcessView], now: datetime, *, wide: bool) -> Table:
    """Processes, one a row, with what each waits for."""
    named = ("id", "key") if wide else ("process",)
    table = empty(*named, "kind", "status", "run", "events", "changed", "next")
    for view in views:
        names = (view.id, view.key or "") if wide else (view.key or view.id,)
        table.add_row(
            *map(Text, names),
            Text(view.kind),
            status(view.status),
            str(view.run),
            str(view.events),
            text.when(view.changed_at, now),
            Text(next_move(view, now)),
        )
    return table


def status(status: Status) -> Text:
    """A status in its colour; one that this Perdure does not know has that of what is broken."""
    return Text(status.value, style=COLOURS.get(status, COLOURS[Status.BROKEN]))


def next_move(view: ProcessView, now: datetime) -> str:
    """Who moves the process next, and when, in a few words."""
    if view.status.value in ("completed", "failed", "cancelled"):
        return "" if view.error is None else text.failure(view.error, 120)
    until = f", {text.when(view.until, now)}" if view.mover == "timer" else ""
    return text.cut(view.waiting, 160) + until


def of_events(events: Iterable[Event], letters: Mapping[int, Message], now: datetime, limit: int) -> Table:
    """Events, one a row, in their order."""
    table = empty("#", "at", "", "event", "what it says")
    for event in events:
        at = instant(event.at)
        table.add_row(
            str(event.number),
            text.clock(at),
            text.when(at, now),
            Text(event_text.what(event)),
            Text(event_text.detail(event, letters, limit)),
        )
    return table


def of_counts(counts: Mapping[str, Mapping[str, int]]) -> Table:
    """How many processes there are, by kind and status."""
    found = {status for one in counts.values() for status in one}
    known = [status.value for status in Status]
    present = [*(one for one in known if one in found), *sorted(found.difference(known))]
    table = empty("kind", *present)
    for kind, numbers in sorted(counts.items()):
        table.add_row(Text(kind), *(str(numbers.get(status, "")) for status in present))
    return table
