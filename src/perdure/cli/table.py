"""Processes, events and counts in rows, for people."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from rich.table import Table
from rich.text import Text

from perdure.cli import event_text, text
from perdure.cli.rows import Rows
from perdure.client.status_changes import StatusChange
from perdure.client.trace import TracedStep
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


def of_processes(views: Sequence[ProcessView], now: datetime, *, wide: bool) -> Rows:
    """Processes, one a row, with what each waits for."""
    named = ("id", "key") if wide else ("process",)
    rows = Rows(*named, "kind", "status", "run", "events", "changed", "next")
    for view in views:
        names = (view.id, view.key or "") if wide else (view.key or view.id,)
        rows.add(
            *names,
            view.kind,
            status(view.status),
            str(view.run),
            str(view.events),
            text.when(view.changed_at, now),
            next_move(view, now),
        )
    return rows


class Facts:
    """What is known of one thing, a line each: a label and what it says; what says nothing has no line."""

    def __init__(self) -> None:
        self.grid = Table.grid(padding=(0, 2))
        self.grid.add_column(style="dim", no_wrap=True)
        self.grid.add_column(overflow="fold")

    def add(self, label: str, told: str) -> None:
        """Another line."""
        if told:
            self.grid.add_row(label, Text(told))


def status(status: Status) -> Text:
    """A status in its colour; one that this Perdure does not know has the colour of ``broken``."""
    return Text(status.value, style=COLOURS.get(status, COLOURS[Status.BROKEN]))


def next_move(view: ProcessView, now: datetime) -> str:
    """Who moves the process next, and when, in a few words."""
    if view.status.value in ("completed", "failed", "cancelled"):
        return "" if view.error is None else text.failure(view.error, 120)
    until = f", {text.when(view.until, now)}" if view.mover in ("timer", "breaker", "schedule") else ""
    return text.cut(view.waiting, 160) + until


def of_events(
    events: Iterable[Event], letters: Mapping[int, Message], now: datetime, limit: int, *, utc: bool, full: bool = False
) -> Rows:
    """Events, one a row, in their order; ``full`` adds the tracebacks of those that record a failure."""
    rows = Rows("#", "at", "", "event", "what it says")
    for event in events:
        at = instant(event.at)
        told = [event_text.detail(event, letters, limit), event_text.trace(event, letters) if full else ""]
        rows.add(
            str(event.number),
            text.clock(at, utc=utc),
            text.when(at, now),
            event_text.what(event),
            "\n".join(part for part in told if part),
        )
    return rows


def of_changes(changes: Iterable[StatusChange], now: datetime, *, utc: bool) -> Rows:
    """Changes of a process's status, one a row."""
    rows = Rows("run", "#", "at", "", "from", "to", "by", "why")
    for one in changes:
        rows.add(
            str(one.run),
            str(one.number or ""),
            text.clock(one.at, utc=utc),
            text.when(one.at, now),
            "" if one.was is None else status(one.was),
            status(one.status),
            one.who,
            text.cut(one.why, 300),
        )
    return rows


def of_steps(steps: Iterable[TracedStep], limit: int, *, utc: bool) -> Rows:
    """Steps of a trace, one a row."""
    rows = Rows("run", "#", "began", "ended", "what", "step", "status", "attempts", "arguments", "result")
    for one in steps:
        arguments = "" if one.arguments is None else text.cut(text.value(one.arguments, limit), limit)
        result = "" if one.result is None else text.cut(text.value(one.result, limit), limit)
        rows.add(
            str(one.run),
            str(one.number or ""),
            "" if one.began is None else text.clock(one.began, utc=utc),
            "" if one.ended is None else text.clock(one.ended, utc=utc),
            one.what,
            f"{one.name}:{one.place}",
            one.status + (f" on {one.worker}" if one.worker and one.ended is None else ""),
            str(one.attempts or ""),
            arguments or (f"digest {one.digest}" if one.digest else ""),
            text.failure(one.error, limit) if one.error is not None else result,
        )
    return rows


def of_counts(counts: Mapping[str, Mapping[str, int]]) -> Rows:
    """How many processes there are, by kind and status."""
    present = in_order({status for one in counts.values() for status in one})
    rows = Rows("kind", *present)
    for kind, numbers in sorted(counts.items()):
        rows.add(kind, *(str(numbers.get(status, "")) for status in present))
    return rows


def in_order(statuses: Collection[str]) -> list[str]:
    """Statuses in the order of a process's life, those that this Perdure does not know at the end."""
    known = [status.value for status in Status]
    return [*(one for one in known if one in statuses), *sorted(set(statuses).difference(known))]
