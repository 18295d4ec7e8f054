"""A report on one process: all that is known about it, gathered to say why it does not move."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perdure.cli import event_text, output, table, text
from perdure.cli.options import ORIGIN, reference_to
from perdure.cli.rows import Rows
from perdure.client.view import ProcessView, instant, known_workers, standing, view
from perdure.engine import Engine
from perdure.errors import PerdureError
from perdure.kernel import run
from perdure.kernel.advice import advice
from perdure.kernel.event import RESULTS, Event, EventType
from perdure.kernel.message import Message
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status
from perdure.kernel.retry import FailedAttempt
from perdure.kernel.transition import Sender
from perdure.kernel.undo import name_and_place
from perdure.kernel.worker import WorkerRow
from perdure.limits import NAME_BYTES
from perdure.store.base import Search

LOOK_BACK = 200
LAST = 8
UNHEARD = 10
_STOPPED = frozenset({Status.FAILED, Status.BROKEN, Status.HELD})


class Parent(msgspec.Struct, frozen=True):
    """The process that has started a child; ``kind`` and ``key`` are None if it is no longer kept."""

    id: str
    kind: str | None = None
    key: str | None = None

    @classmethod
    def of(cls, id: bytes, row: Process | None) -> Parent:
        """The parent with that id, and its row if it is still kept."""
        return cls(id_text(id)) if row is None else cls(id_text(id), str(row.kind), row.key and str(row.key))

    @property
    def told(self) -> str:
        """Its kind, key and id."""
        if self.kind is None:
            return f"{self.id}, which is no longer kept"
        return " ".join(part for part in (self.kind, self.key, self.id) if part)


@dataclass(frozen=True)
class Report:
    """What the store holds about one process, read once; ``pages`` and ``as_json`` show it."""

    row: Process
    view: ProcessView
    now: datetime
    events: Sequence[Event]
    letters: Mapping[int, Message]
    unheard: Sequence[Message]
    worker: WorkerRow | None
    parent: Parent | None
    advice: str

    def retrying(self) -> list[tuple[Event, FailedAttempt]]:
        """The last failed attempt of every step that has had no result since."""
        if self.view.status is not Status.RUNNING:
            return []
        failed: dict[tuple[str, str], tuple[Event, FailedAttempt]] = {}
        for event in self.events:
            slot = (event.name, event.place)
            if event.type is EventType.ATTEMPT_FAILED and (tried := event_text.attempt(event)) is not None:
                failed[slot] = event, tried
            elif event.type in RESULTS:
                failed.pop(slot, None)
        return list(failed.values())

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
        plain["parent"] = msgspec.to_builtins(self.parent)
        plain["advice"] = self.advice
        return plain

    def pages(self, *, utc: bool) -> list[RenderableType]:
        """The parts of the page, for people."""
        parts: list[RenderableType] = [
            Text.assemble((reference_to(self.row), "bold"), "  ", table.status(self.view.status)),
            self._overview(utc),
        ]
        if self.view.progress and self.view.owner is not None:
            parts += ["", Text("steps under way, as of the last beat", style="bold"), self._under_way()]
        if self.retrying():
            parts += ["", Text("failed attempts", style="bold"), self._attempts()]
        if self.unheard:
            every = len(self.unheard)
            more = f"  ({UNHEARD} of {every:,}: perdure show {self.view.id} --json)" if every > UNHEARD else ""
            parts += ["", Text.assemble(("messages not yet heard", "bold"), more), self._unheard()]
        for what, trace in self._traces():
            parts += ["", Text(f"traceback of {what}", style="bold"), Padding(Text(trace), (0, 0, 0, 2))]
        if self.events:
            last = self.events[-LAST:]
            more = f"  (of {self.view.events}: perdure history {self.view.id})" if self.view.events > len(last) else ""
            parts += ["", Text.assemble(("last events", "bold"), more)]
            parts += [table.of_events(last, self.letters, self.now, 160, utc=utc)]
        return parts

    def _overview(self, utc: bool) -> Table:
        view, now = self.view, self.now
        facts = table.Facts()
        row = facts.add

        def at(label: str, moment: datetime | None) -> None:
            row(label, "" if moment is None else f"{text.when(moment, now)} ({text.clock(moment, utc=utc)})")

        row("id", view.id)
        row("parent", "" if self.parent is None else self.parent.told)
        rests = view.mover == "person" and view.status is not Status.RUNNING  # why is said by its error
        row("next", f"person: it is {view.status}" if rests else f"{view.mover}: {view.waiting}")
        at("since", view.since)
        at("looked at" if self.row.reminder else "until", view.until)
        row("worker", "" if self.worker is None else self._presence()["says"])
        row("advice", self.advice)
        row("error", "" if view.error is None else text.failure(view.error))
        row("undone", "" if view.error is None else ", ".join(view.error.undone))
        row("not undone", "" if view.error is None else ", ".join(view.error.owed))
        row("deaths", _deaths(view.deaths))
        row("state", "" if view.state is None else text.value(view.state))
        row("result", text.value(view.result) if view.status is Status.COMPLETED else "")
        row("input", text.value(view.input))
        row("attributes", "" if view.attributes is None else text.value(view.attributes))
        row("reply to", view.reply_to or "")
        row("context", "" if view.context is None else text.value(view.context))
        at("started", view.created_at)
        at("deadline", view.deadline)
        row("run", f"{view.run}" + (f", code version {view.code}" if view.code else ""))
        return facts.grid

    def _traces(self) -> Iterator[tuple[str, str]]:
        """The tracebacks of what keeps the process: of the last failed attempt of a step, and of its own error."""
        failed = _failures(self.events)
        waits = self.view.status in _STOPPED or bool(self.retrying())
        if waits and failed and (trace := event_text.trace(failed[-1], self.letters)):
            yield f"step {failed[-1].name}", trace
        if self.view.error is not None and self.view.error.trace:
            yield "the process", self.view.error.trace.rstrip()

    def _under_way(self) -> Rows:
        rows = Rows("step", "attempt", "since", "may take", "reported")
        for slot, told in self.view.progress.items():
            rows.add(
                text.cut((name_and_place(slot) or (slot,))[0], NAME_BYTES),
                str(told.get("attempt", "")),
                text.when(instant(told.get("since")), self.now),
                f"{text.span(told['timeout'])} without a heartbeat" if "timeout" in told else "",
                "" if told.get("reported") is None else text.value(told["reported"]),
            )
        return rows

    def _attempts(self) -> Rows:
        rows = Rows("step", "attempts", "last failed", "next try", "error")
        for event, tried in self.retrying():
            rows.add(
                event.name,
                str(tried.attempt),
                text.when(instant(event.at), self.now),
                text.when(instant(tried.retry_at), self.now),
                text.failure(tried.failure, 300),
            )
        return rows

    def _unheard(self) -> Rows:
        rows = Rows("#", "sent", "name", "value")
        for letter in self.unheard[:UNHEARD]:
            sent = text.when(instant(letter.at), self.now)
            rows.add(str(letter.number), sent, letter.name, text.payload(letter.payload, 100))
        return rows

    def _presence(self) -> dict[str, Any]:
        """Whether the worker that holds the process is alive."""
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
    workers = await known_workers(store)
    now = await store.now()
    events = await store.history(row.id, row.run, after=max(0, row.events - LOOK_BACK), limit=LOOK_BACK)
    unheard = await store.messages([(row.id, row.seen)]) if row.inbox > row.seen else []
    seen = view(row, now, workers, await standing(store, [row]))
    return Report(
        row,
        seen,
        instant(now),
        events,
        await letters_of(engine, row, [*_failures(events)[-1:], *events[-LAST:]]),
        unheard,
        workers.get(row.owner or b""),
        await _parent(engine, row),
        await _advice(engine, row, seen),
    )


def _failures(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.type in (EventType.STEP_FAILED, EventType.ATTEMPT_FAILED)]


async def _parent(engine: Engine, row: Process) -> Parent | None:
    if row.parent is None:
        return None
    found = await engine.store.search(Search(ids=(row.parent,)))
    return Parent.of(row.parent, found[0] if found else None)


async def _advice(engine: Engine, row: Process, seen: ProcessView) -> str:
    """What a person can do, with a command that will be accepted."""
    kind = "" if seen.error is None else seen.error.type
    return advice(seen.status, kind, seen.id, compensated=await _compensated(engine, row, seen))


async def _compensated(engine: Engine, row: Process, seen: ProcessView) -> bool:
    """Whether a retry would be refused, since what the process had done was undone: the kernel's own decision."""
    if seen.status is not Status.FAILED or seen.error is None or not seen.error.undone:
        return False
    history = await engine.store.history(row.id, row.run, limit=row.events)
    try:
        run.retried(row, history, Sender("", "", ORIGIN), now=await engine.store.now())
    except PerdureError:
        return True
    return False


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
