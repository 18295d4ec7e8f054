"""Looking: the commands that show processes and change nothing."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from cyclopts import Parameter
from msgspec import json as msgspec_json
from msgspec.structs import replace

from perdure.cli import event_text, output, table, text
from perdure.cli.database import warn
from perdure.cli.options import (
    DEFAULT_URL,
    Attributes,
    Json,
    ProcessArgument,
    Switch,
    Url,
    Utc,
    attributes_of,
    connected,
    present,
    process_named,
)
from perdure.cli.report import letters_of, report_on
from perdure.client.view import instant
from perdure.clock import microseconds
from perdure.engine import Engine
from perdure.errors import InvalidInput
from perdure.kernel.names import id_bytes
from perdure.kernel.process import Status
from perdure.store.base import Search

_Statuses = Annotated[list[Status] | None, Parameter(negative="")]


async def ps(
    *,
    kind: str | None = None,
    status: _Statuses = None,
    prefix: str | None = None,
    attribute: Attributes = None,
    roots: Switch = False,
    since: str | None = None,
    where: str = "",
    before: str | None = None,
    limit: int = 20,
    wide: Switch = False,
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """List processes, the newest first, and what each waits for.

    After the list they are counted, by kind and status. In a narrow terminal a
    row goes on in the next line, indented.

    Parameters
    ----------
    kind
        Only processes of this kind.
    status
        Only processes in this status; may be given several times.
    prefix
        Only processes whose key begins like this.
    attribute
        Only processes with this search attribute, as name=value; may be given several times.
    roots
        Only processes that no other process has started.
    since
        Only processes started within this time: 90s, 15m, 2h, 7d.
    where
        Only processes that fit this query: "error = CardRefused and age < 2d".
    before
        Only processes older than the one with this id: the next page.
    limit
        How many to list.
    wide
        Show ids beside keys.
    """
    async with connected(url) as engine:
        now = await engine.store.now()
        search = Search(
            kind=kind,
            statuses=tuple(status or ()),
            key_prefix=prefix,
            attributes=tuple((name, _json_text(value)) for name, value in attributes_of(attribute).items()),
            roots=roots,
            created_from=None if since is None else now - microseconds(text.seconds_of(since)),
            before_id=None if before is None else id_bytes(before),
            limit=limit,
        )
        await warn(engine)
        await _list(engine, search, where, wide=wide, json=json, now=instant(now))


async def _list(engine: Engine, search: Search, where: str, *, wide: bool, json: bool, now: datetime) -> None:
    if json:
        output.show_json(await engine.list(search, where=where))
        return
    counts = await engine.count(replace(search, before_id=None), where=where)  # of all pages
    views = await engine.list(
        search, where=where
    )  # after the counts: nothing is counted as ended that is listed as running
    if not counts:
        output.show("no such process")
        return
    total = sum(sum(numbers.values()) for numbers in counts.values())
    if views:
        output.show(table.of_processes(views, now, wide=wide), "")
    if len(views) < total:
        more = f"; the next ones: --before {views[-1].id}" if views else ""
        output.show(f"{len(views)} of {total:,} processes{more}", "")
    output.show(table.of_counts(counts))


async def show(process: ProcessArgument, *, utc: Utc = False, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Show what one process waits for, what failed, what it did last.

    It says since when and until when it waits, who must act next, what can be
    done, and the traceback of an error.
    """
    async with connected(url) as engine:
        await warn(engine)
        found = await report_on(engine, await process_named(engine, process))
        if json:
            output.show_json(found.as_json())
        else:
            output.show(*found.pages(utc=utc))


async def history(
    process: ProcessArgument,
    *,
    run: int | None = None,
    after: int = 0,
    limit: int = 1000,
    full: Switch = False,
    statuses: Switch = False,
    utc: Utc = False,
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Print the events of a process, in their order.

    Parameters
    ----------
    run
        The events of an earlier run, by its number.
    after
        Only events with higher numbers.
    limit
        How many events.
    full
        Print payloads and errors whole, with tracebacks.
    statuses
        Print each change of its status instead, over all runs: when, by whom and why.
    """
    async with connected(url) as engine:
        row = await process_named(engine, process)
        if statuses:
            changes = await engine.process(row.id).statuses()
            if json:
                output.show_json(changes)
            else:
                output.show(table.of_changes(changes, await present(engine), utc=utc))
            return
        if run is not None and not 1 <= run <= row.run:
            raise InvalidInput(f"there is no run {run}: the process is in run {row.run}")
        events = await engine.process(row.id).history(run, after=after, limit=limit)
        letters = await letters_of(engine, row, events)
        if json:
            output.show_json([event_text.as_json(event, letters) for event in events])
            return
        limit_bytes = 2**22 if full else text.VALUE_BYTES
        output.show(table.of_events(events, letters, await present(engine), limit_bytes, utc=utc, full=full))
        if events and len(events) == limit:
            output.show("", f"there may be more: --after {events[-1].number}")
        if run is not None and run < row.run - 1 and not events and not after:
            output.show("", f"run {run} has no events any more: former runs are removed when their retention is over")


async def trace(
    process: ProcessArgument, *, full: Switch = False, utc: Utc = False, json: Json = False, url: Url = DEFAULT_URL
) -> None:
    """Show all steps, queued steps and children of all runs.

    They stand in the order in which they ended, those that are open at the end.
    Of a process with more than 100,000 such events the first ones are read.

    Parameters
    ----------
    full
        Print arguments and results whole.
    """
    async with connected(url) as engine:
        row = await process_named(engine, process)
        steps = await engine.process(row.id).trace()
        if json:
            output.show_json(steps)
        elif steps:
            output.show(table.of_steps(steps, 2**22 if full else text.VALUE_BYTES, utc=utc))
        else:
            output.show("no step of it is recorded")


def _json_text(value: object) -> str:
    """The JSON text of a value, as a search wants it."""
    return msgspec_json.encode(value).decode()
