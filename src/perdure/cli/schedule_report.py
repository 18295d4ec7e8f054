"""A report on schedules: all of them in rows, or one with its rules, its counts, and what it has started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from perdure.cli import output, table, text
from perdure.cli.options import present
from perdure.cli.rows import Rows
from perdure.client.schedules import ScheduleView
from perdure.client.view import ProcessView
from perdure.engine import Engine
from perdure.kernel.names import id_bytes
from perdure.kernel.process import Status
from perdure.limits import SCHEDULE_GRACE_SECONDS
from perdure.store.base import Search


def of_schedules(views: Sequence[ScheduleView], *, utc: bool) -> Rows:
    """Schedules, one a row; the last cell says what keeps one from starting anything."""
    rows = Rows("schedule", "when", "workflow", "next", "running", "started", "state")
    for view in views:
        running = f"{view.running:,}" + (f" + {view.waiting:,} queued" if view.waiting else "")
        next_time = text.clock(view.next, utc=utc) or "none"
        rows.add(view.name, view.times, view.workflow, next_time, running, f"{view.started:,}", _state(view))
    return rows


def _state(view: ScheduleView) -> str:
    """What keeps a schedule from starting anything: empty if nothing does."""
    parts = [] if view.status == Status.RUNNING else [f"its process is {view.status}: perdure show {view.process}"]
    if view.paused:
        parts.append(f"paused {view.paused}" if view.paused.startswith("by ") else f"paused: {view.paused}")
    return text.cut("; ".join(parts), 300)


@dataclass(frozen=True)
class ScheduleReport:
    """What the store holds about one schedule; ``started`` are those of its last processes that are still kept."""

    view: ScheduleView
    started: Mapping[str, ProcessView]
    now: datetime

    def as_json(self) -> dict[str, Any]:
        """Everything as plain values, durations in seconds."""
        plain: dict[str, Any] = msgspec.to_builtins(self.view, builtin_types=(datetime,), enc_hook=output.carried)
        for one in plain["recent"]:
            process = self.started.get(one["process"])
            one["status"] = None if process is None else process.status.value
        return plain

    def pages(self, *, utc: bool) -> list[RenderableType]:
        """The parts of the page, for people."""
        parts: list[RenderableType] = [self._overview(utc)]
        if self.view.recent:
            parts += ["", Text("last started", style="bold"), self._recent(utc)]
        return parts

    def _overview(self, utc: bool) -> Table:
        view = self.view
        facts = table.Facts()
        row = facts.add

        row("schedule", view.name)
        row("state", _state(view))
        row("workflow", view.workflow + (f", code version {view.version}" if view.version else ""))
        row("arguments", ", ".join(self._arguments()))
        row("attributes", text.value(view.attributes) if view.attributes else "")
        row("context", "" if view.context is None else text.value(view.context))
        row("deadline", "" if view.deadline is None else f"{text.span(view.deadline)} after the start")
        row("when", view.times)
        row("skipped days", ", ".join(map(str, view.skip_days)))
        row("next", f"{text.when(view.next, self.now)} ({text.clock(view.next, utc=utc)})" if view.next else "none")
        row("overlap", self._overlap())
        row("catch-up", self._catch_up())
        if view.late_after is not None:
            row("late", f"what begins later than {text.span(view.late_after)} is started as {view.late}")
        row("jitter", f"up to {text.span(view.jitter)}" if view.jitter else "")
        row("stop after", "" if view.stop_after is None else f"{view.stop_after:,} failed processes in a row")
        row("occurrences", f"{view.started:,} started, {view.skipped:,} skipped, {view.missed:,} missed")
        row("running", f"{view.running:,}, when it looked last" if view.running else "none")
        row("queued", f"{view.waiting:,}" if view.waiting else "")
        row("process", view.process)
        return facts.grid

    def _arguments(self) -> list[str]:
        target = self.view
        told = [text.value(one) for one in target.args]
        told += [f"{name}={text.value(one)}" for name, one in target.named.items()]
        return [*told, "scheduled_at=the time of the occurrence"] if target.timed else told

    def _catch_up(self) -> str:
        """How late an occurrence may be; what jitter puts off is not late."""
        most = text.span(max(self.view.catch_up, SCHEDULE_GRACE_SECONDS))
        return f"what is later than {most}{', and than the jitter allows,' if self.view.jitter else ''} is missed"

    def _overlap(self) -> str:
        """What becomes of an occurrence while others run."""
        view = self.view
        if view.limit is None:
            return "allow: it is started whatever runs"
        runs = "the one before runs" if view.limit == 1 else f"{view.limit:,} of them run"
        outcome = {"skip": "it is left out", "queue": "it waits", "cancel": "the oldest is asked to cancel"}
        return f"{view.overlap}: while {runs}, {outcome[view.overlap]}"

    def _recent(self, utc: bool) -> Rows:
        rows = Rows("for", "", "process", "status")
        for one in self.view.recent:
            process = self.started.get(one.process)
            status = Text("no longer kept") if process is None else table.status(process.status)
            rows.add(text.clock(one.at, utc=utc), text.when(one.at, self.now), one.process, status)
        return rows


async def report_on_schedule(engine: Engine, name: str) -> ScheduleReport:
    """Read everything about a schedule; raises ScheduleNotFound."""
    view = await engine.schedules.handle(name).status()
    wanted = tuple(id_bytes(one.process) for one in view.recent)
    found = await engine.list(Search(ids=wanted, limit=len(wanted))) if wanted else []
    return ScheduleReport(view, {process.id: process for process in found}, await present(engine))
