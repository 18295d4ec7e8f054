"""A report: all that is known about one process, gathered to say why it does not move."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from perdure.cli import event_text, output, table, text
from perdure.cli.options import reference_to
from perdure.client.queues import standing
from perdure.client.view import ProcessView, instant, view
from perdure.engine import Engine
from perdure.kernel.advice import advice
from perdure.kernel.event import Event, EventType
from perdure.kernel.message import Message
from perdure.kernel.process import Process, Status
from perdure.kernel.retry import FailedAttempt, decode_attempt
from perdure.kernel.stored import why_undecodable
from perdure.kernel.undo import name_and_place
from perdure.kernel.worker import WorkerRow
from perdure.limits import NAME_BYTES

LOOK_BACK = 200
LAST = 8
UNHEARD = 10


class Report:
    """What the store holds about one process, read once; ``pages`` and ``as_json`` tell it."""

    def __init__(
        self,
        view: ProcessView,
        now: datetime,
        events: Sequence[Event],
        letters: dict[int, Message],
        unheard: Sequence[Message],
        worker: WorkerRow | None,
        row: Process,
    ) -> None:
        self.view = view
        self.now = now
        self.events = events
        self.letters = letters
        self.unheard = unheard
        self.worker = worker
        self.title = reference_to(row)
        self.reminder = row.reminder  # its due time is only a reminder: nothing moves it then

    def retrying(self) -> list[tuple[Event, FailedAttempt]]:
        """The last failed attempt of every step that has not been answered since."""
        failed: dict[tuple[str, str], tuple[Event, FailedAttempt]] = {}
        for event in self.events:
            slot = (event.name, event.place)
            if event.type is EventType.ATTEMPT_FAILED and event.payload and not why_undecodable(event.payload):
                failed[slot] = event, decode_attempt(event.payload)
            elif event.type in (EventType.STEP_COMPLETED, EventType.STEP_FAILED):
                failed.pop(slot, None)
        return list(failed.values()) if self.view.status is Status.RUNNING else []

    def as_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        plain: dict[str, Any] = msgspec.to_builtins(self.view, builtin_types=(datetime,), enc_hook=output.carried)
        plain["retrying"] = [
            {"step": event.name, "place": event.place, **msgspec.to_builtins(tried)}
            | {"since": instant(tried.since), "retry_at": instant(tried.retry_at)}
            for event, tried in self.retrying()
        ]
        plain["last_events"] = [event_text.as_json(event, self.letters) for event in self.events[-LAST:]]
        plain["unheard_messages"] = [
            {"number": one.number, "type": one.type.name.lower(), "name": one.name, "at": instant(one.at)}
            for one in self.unheard
        ]
        plain["worker"] = None if self.worker is None else self._presence()
        return plain

    def pages(self) -> list[RenderableType]:
        """The parts of the page, for people."""
        parts: list[RenderableType] = [
            Text.assemble((self.title, "bold"), "  ", table.status(self.view.status)),
            self._overview(),
        ]
        if self.view.progress and self.view.owner is not None:
            parts += ["", Text("steps under way, as of the last beat", style="bold"), self._under_way()]
        if self.retrying():
            parts += ["", Text("failed attempts", style="bold"), self._attempts()]
        if self.unheard:
            parts += ["", Text("messages not yet heard", style="bold"), self._unheard()]
        if self.events:
            last = self.events[-LAST:]
            more = f"  (of {self.view.events}: perdure history {self.view.id})" if self.view.events > len(last) else ""
            parts += ["", Text.assemble(("last events", "bold"), more)]
            parts += [table.of_events(last, self.letters, self.now, 160)]
        return parts

    def _overview(self) -> Table:
        view, now = self.view, self.now
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")

        def row(label: str, told: str) -> None:
            if told:
                grid.add_row(label, Text(told))

        row("id", view.id)
        rests = view.mover == "person" and view.status is not Status.RUNNING  # why is said by its error
        row("next", f"person: it is {view.status}" if rests else f"{view.mover}: {view.waiting}")
        row("since", _both(view.since, now))
        row("looked at" if self.reminder else "until", _both(view.until, now))
        row("worker", "" if self.worker is None else self._presence()["says"])
        row("advice", self._advice())
        row("error", "" if view.error is None else text.failure(view.error))
        row("undone", "" if view.error is None else ", ".join(view.error.undone))
        row("not undone", "" if view.error is None else ", ".join(view.error.owed))
        row("deaths", _deaths(view.deaths))
        row("state", "" if view.state is None else text.value(view.state))
        row("result", text.value(view.result) if view.status is Status.COMPLETED else "")
        row("input", text.value(view.input))
        row("attributes", "" if view.attributes is None else text.value(view.attributes))
        row("started", _both(view.created_at, now))
        row("deadline", _both(view.deadline, now))
        row("run", f"{view.run}" + (f", code version {view.code}" if view.code else ""))
        return grid

    def _advice(self) -> str:
        view = self.view
        if view.status is Status.FAILED and view.error is not None and view.error.undone:
            retry, restart = (f"`perdure {verb} {view.id}`" for verb in ("retry", "restart"))
            return f"{retry} goes on, unless what was undone would count as done: then {restart} starts a new run"
        return advice(view.status, "" if view.error is None else view.error.type, view.id)

    def _under_way(self) -> Table:
        grid = table.empty("step", "attempt", "since", "may take", "reported")
        for slot, told in self.view.progress.items():
            grid.add_row(
                Text(text.cut((name_and_place(slot) or (slot,))[0], NAME_BYTES)),
                str(told.get("attempt", "")),
                text.when(instant(told.get("since")), self.now),
                f"{text.span(told['timeout'])} without a heartbeat" if "timeout" in told else "",
                Text("" if told.get("reported") is None else text.value(told["reported"])),
            )
        return grid

    def _attempts(self) -> Table:
        grid = table.empty("step", "attempts", "last failed", "next try", "error")
        for event, tried in self.retrying():
            grid.add_row(
                Text(event.name),
                str(tried.attempt),
                text.when(instant(event.at), self.now),
                text.when(instant(tried.retry_at), self.now),
                Text(text.failure(tried.failure, 300)),
            )
        return grid

    def _unheard(self) -> Table:
        grid = table.empty("#", "sent", "name", "value")
        for letter in self.unheard:
            sent = text.when(instant(letter.at), self.now)
            grid.add_row(str(letter.number), sent, Text(letter.name), Text(text.payload(letter.payload, 100)))
        return grid

    def _presence(self) -> dict[str, Any]:
        """Whether the worker that has the process in hand lives."""
        worker = self.worker
        assert worker is not None
        due = instant(worker.due_at)
        if worker.ended_at is not None:
            state = "died" if worker.died else "ended"
            ended = text.when(instant(worker.ended_at), self.now)
            says = f"{worker.name} {state} {ended}; the next sweep frees what it held"
        elif due is not None and due < self.now:
            state, says = "silent", f"{worker.name} is silent: its beat was due {text.when(due, self.now)}"
        else:
            state, says = "alive", f"{worker.name}, alive; it must beat again {text.when(due, self.now)}"
        return {"name": worker.name, "state": state, "beats": worker.beats, "due_at": due, "says": says}


async def report_on(engine: Engine, row: Process) -> Report:
    """Read everything about a process."""
    store = engine.store
    workers = await store.workers(ended=True)
    owner = next((worker for worker in workers if worker.id == row.owner), None)
    now = await store.now()
    events = await store.history(row.id, row.run, after=max(0, row.events - LOOK_BACK), limit=LOOK_BACK)
    unheard = await store.messages([(row.id, row.seen)]) if row.inbox > row.seen else []
    names = {worker.id: worker.name for worker in workers}
    seen = view(row, now, names, await standing(store, [row]))
    letters = await letters_of(engine, row, events[-LAST:])
    at = instant(now)
    assert at is not None
    return Report(seen, at, events, letters, unheard[:UNHEARD], owner, row)


async def letters_of(engine: Engine, row: Process, events: Sequence[Event]) -> dict[int, Message]:
    """The messages that the events record, by number."""
    numbers = [event.message for event in events if event.message is not None]
    if not numbers:
        return {}
    return {letter.number: letter for letter in await engine.store.messages([(row.id, min(numbers) - 1)])}


def _deaths(number: int) -> str:
    if not number:
        return ""
    return "a worker died with it in hand" if number == 1 else f"{number} workers died with it in hand"


def _both(moment: datetime | None, now: datetime) -> str:
    return "" if moment is None else f"{text.when(moment, now)} ({text.clock(moment)})"
