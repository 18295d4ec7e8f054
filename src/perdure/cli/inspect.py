"""Seeing: the verbs that look at processes and change nothing."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from cyclopts import Parameter
from msgspec import json as msgspec_json
from msgspec.structs import replace

from perdure.cli import event_text, output, table, text
from perdure.cli.database import warn
from perdure.cli.options import DEFAULT_URL, Json, ProcessArgument, Url, connected, process_named
from perdure.cli.report import letters_of, report_on
from perdure.cli.start import plain
from perdure.client.view import instant
from perdure.clock import microseconds
from perdure.engine import Engine
from perdure.errors import InvalidInput
from perdure.kernel.names import id_bytes
from perdure.kernel.process import Status
from perdure.store.base import Search

_Statuses = Annotated[list[Status] | None, Parameter(negative="")]
_Attributes = Annotated[list[str] | None, Parameter(name="--attribute", negative="")]
_Switch = Annotated[bool, Parameter(negative="")]


async def ps(
    *,
    kind: str | None = None,
    status: _Statuses = None,
    prefix: str | None = None,
    attribute: _Attributes = None,
    since: str | None = None,
    before: str | None = None,
    limit: int = 20,
    wide: _Switch = False,
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """List processes, the newest first, with what each waits for; then count them by kind and status.

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
    since
        Only processes started within this time: 90s, 15m, 2h, 7d.
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
            attributes=tuple(map(_attribute, attribute or ())),
            created_from=None if since is None else now - microseconds(text.seconds_of(since)),
            before_id=None if before is None else id_bytes(before),
            limit=limit,
        )
        await warn(engine)
        await _list(engine, search, wide=wide, json=json, now=instant(now))


async def _list(engine: Engine, search: Search, *, wide: bool, json: bool, now: datetime | None) -> None:
    if json:
        output.show_json(await engine.list(search))
        return
    assert now is not None
    counts = await engine.count(replace(search, before_id=None))  # of all pages
    views = await engine.list(search)  # after the counts: nothing is counted as ended that is listed as running
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


async def show(process: ProcessArgument, *, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Show one process: what it waits for, since when and until when, what failed, and what happened last."""
    async with connected(url) as engine:
        await warn(engine)
        found = await report_on(engine, await process_named(engine, process))
        if json:
            output.show_json(found.as_json())
        else:
            output.show(*found.pages())


async def history(
    process: ProcessArgument,
    *,
    run: int | None = None,
    after: int = 0,
    limit: int = 1000,
    full: _Switch = False,
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Print the events of a process, in their order.

    Parameters
    ----------
    run
        An earlier run than the present one.
    after
        Only events with higher numbers.
    limit
        How many events.
    full
        Print payloads and errors whole.
    """
    async with connected(url) as engine:
        row = await process_named(engine, process)
        if run is not None and not 1 <= run <= row.run:
            raise InvalidInput(f"there is no run {run}: the process is in run {row.run}")
        events = await engine.history(row.id, run, after=after, limit=limit)
        letters = await letters_of(engine, row, events)
        if json:
            output.show_json([event_text.as_json(event, letters) for event in events])
            return
        now = instant(await engine.store.now())
        assert now is not None
        output.show(table.of_events(events, letters, now, 2**22 if full else text.VALUE_BYTES))
        if len(events) == limit:
            output.show("", f"there may be more: --after {events[-1].number}")
        if run is not None and run < row.run - 1 and not events and not after:
            output.show("", f"run {run} has no events any more: former runs are removed when their retention is over")


def _attribute(text: str) -> tuple[str, str]:
    name, equals, wanted = text.partition("=")
    if not equals or not name:
        raise InvalidInput(f"{text!r:.80} is no attribute; write name=value")
    return name, msgspec_json.encode(plain(wanted)).decode()
