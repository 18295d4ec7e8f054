"""Operations at the terminal: one command for all processes that fit a query, previewed, started, paused, looked at."""

from __future__ import annotations

import asyncio
from typing import Any

from cyclopts import App
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from perdure.authoring.operation.plan import OperationStatus
from perdure.cli import exit_code, output, text
from perdure.cli.adjust import value_of
from perdure.cli.options import DEFAULT_URL, Json, Switch, Url, Who, Why, connected, user
from perdure.cli.rows import Rows
from perdure.cli.table import Facts
from perdure.client.operations import OperationHandle, Preview
from perdure.kernel.process import DEFAULT_PRIORITY

LOOK_SECONDS = 1.0
"""How often a watched operation is looked at."""
BAR_COLUMNS = 40

operation = App(name="operation", help="Repair many processes with one command.", help_format="plaintext")


@operation.command
async def start(
    verb: str,
    where: str,
    *,
    step: str = "",
    value: str | None = None,
    method: str = "",
    restart: Switch = False,
    force: Switch = False,
    rate: float | None = None,
    canary: int = 0,
    stop_at: float = 0.5,
    stop_after_failures: int = 0,
    stop_when_relapsed: float = 100.0,
    watch: str = "10s",
    live: str = "0s",
    priority: int = DEFAULT_PRIORITY,
    dry_run: Switch = False,
    wait: Switch = False,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Give a command to all processes that fit a query: perdure operation start retry "error = CardRefused".

    A worker carries it out, each process once, and goes on if this program or
    the worker dies. What changes after this command was given is left alone.

    Parameters
    ----------
    verb
        One of retry, restart, restart-from, repair, set-result, skip, edit-input,
        edit-fields, edit-attributes, hold, resume, move, set-priority,
        set-deadline, cancel, terminate, fail, remove.
    where
        The query: "status = failed and error = CardRefused and age < 2d".
    step
        The step, for skip, set-result and restart-from.
    value
        As JSON: the result for set-result, the arguments for edit-input and
        repair, fields or attributes with their values for edit-fields and
        edit-attributes. The version for move, 0 to 9 for set-priority; 2h,
        a time or none for set-deadline.
    method
        The method of the machines, for repair.
    restart
        For edit-input: what has begun begins again.
    force
        For remove: also what has not ended. For move: to a version that no
        live worker hosts.
    rate
        At most so many processes a second.
    canary
        So many processes first; the others only if these do not relapse.
    stop_at
        The share of relapsed canaries, 0 to 1, above which it stops.
    stop_after_failures
        Stop at so many processes that relapse or cannot be commanded; 0 is never.
    stop_when_relapsed
        Stop if more than so many percent of the commanded processes relapse.
    watch
        How long to wait before looking who has relapsed: 10s, 5m.
    live
        For so long, look again for processes that have come to fit: 1h.
    priority
        From 0 (first) to 9: which of several operations goes first.
    dry_run
        Show what would be done to how many, and change nothing.
    wait
        Wait for its end.
    """
    given = None if value is None else value_of(verb, value)
    what: dict[str, Any] = {"step": step, "value": given, "method": method, "restart": restart, "force": force}
    async with connected(url) as engine:
        if dry_run:
            preview = await engine.operations.preview(verb, where, **what, rate=rate)
            output.show_json(preview) if json else output.show(_preview(preview, verb))
            return exit_code.DONE
        started = await engine.operations.start(
            verb, where, **what, rate=rate, canary=canary, stop_at=stop_at, watch=text.seconds_of(watch),
            stop_after_failures=stop_after_failures, stop_when_relapsed=stop_when_relapsed / 100,
            live=text.seconds_of(live), priority=priority, who=who or user(), why=why,
        )  # fmt: skip
        return await _told(started, wait=wait, json=json)


@operation.command
async def undo(
    operation: str,
    *,
    rate: float | None = None,
    priority: int = DEFAULT_PRIORITY,
    dry_run: Switch = False,
    wait: Switch = False,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Take back what an operation has done, where that can be.

    What was held goes on, what was resumed is held, an edit, a move, a priority
    or a deadline gets its old value, unless something has happened since. All
    else is left as it is, and counted with the reason: see --dry-run. An undo
    is an operation as well.

    Parameters
    ----------
    operation
        The id of the operation to take back; it must have ended.
    rate
        At most so many processes a second.
    priority
        From 0 (first) to 9: which of several operations goes first.
    dry_run
        Show what would be taken back, and change nothing.
    wait
        Wait for its end.
    """
    async with connected(url) as engine:
        if dry_run:
            preview = await engine.operations.preview_undo(operation, rate=rate)
            output.show_json(preview) if json else output.show(_preview(preview, "undo"))
            return exit_code.DONE
        started = await engine.operations.undo(operation, rate=rate, priority=priority, who=who or user(), why=why)
        return await _told(started, wait=wait, json=json)


async def _told(started: OperationHandle, *, wait: bool, json: bool) -> int:
    """Say which operation was started, or, once it has ended, what has become of it."""
    outcome = await (started.result() if wait else started.status())
    if json:
        output.show_json({"id": started.id, "outcome": outcome})
    elif wait:
        output.show(_outcome(outcome))
    else:
        output.show(f"started operation {started.id}; `perdure operation show {started.id}` shows how far it is")
    return exit_code.DONE


@operation.command
async def ls(*, limit: int = 20, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """List operations, the newest first.

    Parameters
    ----------
    limit
        How many to list.
    """
    async with connected(url) as engine:
        found = await engine.operations.list(limit)
        if json:
            output.show_json([{"id": id, "outcome": outcome} for id, outcome in found])
            return
        rows = Rows("operation", "phase", "done", "relapsed", "left out", "why it does not go on")
        for id, one in found:
            left_out = one.seen - one.done
            why = one.stopped or one.paused or one.waits
            rows.add(id, one.phase, f"{one.done:,}", f"{one.relapsed:,}", f"{left_out:,}", why)
        output.show(rows if found else "there has been no operation")
        if len(found) == limit:
            output.show("", f"no more than {limit:,} are listed: --limit")


@operation.command
async def show(operation: str, *, watch: Switch = False, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Show how far an operation is, and why processes were left out.

    Parameters
    ----------
    operation
        Its id.
    watch
        Go on showing it until it has ended.
    """
    async with connected(url) as engine:
        handle = engine.operations.handle(operation)
        outcome = await handle.status()
        if watch and not outcome.ended:
            outcome = await _watched(handle, outcome)
        output.show_json(outcome) if json else output.show(_outcome(outcome))


async def _watched(handle: OperationHandle, outcome: OperationStatus) -> OperationStatus:
    """Draw how far it is, again and again, on the error output, until it has ended."""
    console = output.console(error=True)
    with Live(_progress(outcome), console=console, transient=True, auto_refresh=False) as live:
        while not outcome.ended:
            await asyncio.sleep(LOOK_SECONDS)
            outcome = await handle.status()
            live.update(_progress(outcome), refresh=console.is_terminal)
    return outcome


@operation.command
async def pause(operation: str, *, why: Why = "", url: Url = DEFAULT_URL) -> None:
    """Let an operation do nothing more until it is resumed.

    Parameters
    ----------
    operation
        Its id.
    """
    async with connected(url) as engine:
        await engine.operations.handle(operation).pause(why)
        output.show(f"operation {operation} is paused")


@operation.command
async def resume(operation: str, *, url: Url = DEFAULT_URL) -> None:
    """Let an operation go on that was paused, or has stopped at its canary.

    Parameters
    ----------
    operation
        Its id.
    """
    async with connected(url) as engine:
        await engine.operations.handle(operation).resume()
        output.show(f"operation {operation} goes on")


@operation.command
async def abort(operation: str, *, why: Why = "", url: Url = DEFAULT_URL) -> None:
    """End an operation: what it has done stays done, the rest is left as it is.

    Parameters
    ----------
    operation
        Its id.
    """
    async with connected(url) as engine:
        await engine.operations.handle(operation).abort(why)
        output.show(f"operation {operation} is aborted")


def _preview(preview: Preview, verb: str) -> Table:
    facts = Facts()
    facts.add("would be done", f"{verb}: {preview.would:,} processes")
    facts.add("would take", f"about {text.span(preview.seconds)}" if preview.would else "")
    facts.add("would run again", f"{preview.repeated:,} steps that were done" if preview.repeated else "")
    facts.add("would be told", f"{preview.children:,} children and others" if preview.children else "")
    for why, number in preview.left_out.items():
        facts.add("would be left out", f"{number:,}: {why}")
    facts.add("for example", ", ".join(preview.sample[:3]))
    return facts.grid


def _outcome(outcome: OperationStatus) -> Table:
    facts = Facts()
    facts.add("phase", outcome.phase)
    of = "" if outcome.planned is None else f" of {outcome.planned:,}"
    facts.add("done", f"{outcome.done:,}{of} processes, {outcome.relapsed:,} of them have relapsed")
    for why, number in outcome.left_out.items():
        facts.add("left out", f"{number:,}: {why}")
    for why, number in outcome.failed.items():
        facts.add("failed", f"{number:,}: {why}")
    facts.add("stopped", outcome.stopped)
    facts.add("paused", outcome.paused)
    facts.add("waits", outcome.waits)
    return facts.grid


def _progress(outcome: OperationStatus) -> Table:
    """One line, at most 80 columns: a bar, how many of how many, and what it does."""
    planned = outcome.planned or 0
    line = Table.grid(padding=(0, 1))
    line.add_row(
        ProgressBar(total=max(planned, 1), completed=outcome.seen, width=BAR_COLUMNS),
        f"{outcome.seen:,}/{planned:,}",
        "paused" if outcome.paused else "waits" if outcome.waits else outcome.phase,
    )
    return line
