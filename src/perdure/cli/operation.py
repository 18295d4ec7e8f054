"""Operations at the terminal: one command for all processes that fit a query, previewed, started, paused, looked at."""

from __future__ import annotations

from cyclopts import App
from rich.table import Table

from perdure.authoring.operation.plan import OperationStatus
from perdure.cli import exit_code, output, text
from perdure.cli.options import DEFAULT_URL, Json, Switch, Url, Who, Why, connected, user
from perdure.cli.rows import Rows
from perdure.cli.table import Facts
from perdure.client.operations import Preview

operation = App(name="operation", help="Repair many processes with one command.", help_format="plaintext")


@operation.command
async def start(
    verb: str,
    where: str,
    *,
    step: str = "",
    rate: float | None = None,
    canary: int = 0,
    stop_at: float = 0.5,
    watch: str = "10s",
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
        One of retry, restart, restart-from, skip, hold, resume, terminate, fail.
    where
        The query: "status = failed and error = CardRefused and age < 2d".
    step
        The step, for skip and restart-from.
    rate
        At most so many processes a second.
    canary
        So many processes first; the others only if these do not relapse.
    stop_at
        The share of relapsed canaries, 0 to 1, above which it stops.
    watch
        How long to wait before looking who has relapsed: 10s, 5m.
    dry_run
        Show what would be done to how many, and change nothing.
    wait
        Wait for its end.
    """
    async with connected(url) as engine:
        if dry_run:
            preview = await engine.operations.preview(verb, where, step=step)
            output.show_json(preview) if json else output.show(_preview(preview, verb))
            return exit_code.DONE
        started = await engine.operations.start(
            verb, where, step=step, rate=rate, canary=canary, stop_at=stop_at, watch=text.seconds_of(watch),
            who=who or user(), why=why,
        )  # fmt: skip
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
            left_out = sum(one.left_out.values())
            rows.add(id, one.phase, f"{one.done:,}", f"{one.relapsed:,}", f"{left_out:,}", one.stopped or one.paused)
        output.show(rows if found else "there has been no operation")


@operation.command
async def show(operation: str, *, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Show how far an operation is, and why processes were left out.

    Parameters
    ----------
    operation
        Its id.
    """
    async with connected(url) as engine:
        outcome = await engine.operations.handle(operation).status()
        output.show_json(outcome) if json else output.show(_outcome(outcome))


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
    for why, number in preview.left_out.items():
        facts.add("would be left out", f"{number:,}: {why}")
    facts.add("for example", ", ".join(preview.sample[:3]))
    return facts.grid


def _outcome(outcome: OperationStatus) -> Table:
    facts = Facts()
    facts.add("phase", outcome.phase)
    facts.add("done", f"{outcome.done:,} processes, {outcome.relapsed:,} of them have relapsed")
    for why, number in outcome.left_out.items():
        facts.add("left out", f"{number:,}: {why}")
    facts.add("stopped", outcome.stopped)
    facts.add("paused", outcome.paused)
    return facts.grid
