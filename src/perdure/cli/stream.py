"""Event streams at the terminal: who gets what happens to processes, how far behind each is, and what comes next."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal

from cyclopts import App, Parameter

from perdure.cli import output, text
from perdure.cli.options import DEFAULT_URL, ORIGIN, Json, Url, Utc, Who, Why, connected, present, user
from perdure.cli.rows import Rows
from perdure.client.streams import EventStreamView, Since
from perdure.engine import Engine
from perdure.streaming.record import StreamRecord

stream = App(name="stream", help="Show, make, change and remove event streams.", help_format="plaintext")

Kinds = Annotated[list[str] | None, Parameter(name="--kind", negative="")]
_PAYLOAD = 300


@stream.command
async def ls(*, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """List event streams: what each gets, where to, and how far behind it is."""
    async with connected(url) as engine:
        await _show(engine, await engine.streams.list(), json=json)


@stream.command
async def show(name: str, *, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Show one event stream.

    Parameters
    ----------
    name
        The event stream.
    """
    async with connected(url) as engine:
        await _show(engine, [await engine.streams.state(name)], json=json)


@stream.command
async def put(
    name: str,
    *,
    kind: Kinds = None,
    events: Literal["all", "lifecycle"] = "all",
    to: str | None = None,
    since: str = "now",
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Make an event stream, which begins with what is committed from now on or since then; or change one.

    A change keeps the position.

    Parameters
    ----------
    name
        The event stream.
    kind
        Only processes of this kind; may be given several times.
    events
        All events, or only how the lives of processes go on.
    to
        The URL to which workers deliver: https://... or redis://...; without it a program reads.
    since
        What a new stream begins with: now, beginning (all that is stored), an
        instant as 2026-10-25T12:00+02:00, or how long ago: 15m, 2h, 7d.
    """
    async with connected(url) as engine:
        seen = await engine.streams.put(
            name, kinds=kind, events=events, to=to, since=_since(since, await present(engine)),
            who=who or user(), why=why, origin=ORIGIN,
        )  # fmt: skip
        await _show(engine, [seen], json=json)


@stream.command
async def rm(name: str, *, url: Url = DEFAULT_URL) -> None:
    """Remove an event stream and its position; what it did not get yet is lost to it.

    Parameters
    ----------
    name
        The event stream.
    """
    async with connected(url) as engine:
        await engine.streams.remove(name)
        output.show(f"event stream {name} was removed")


@stream.command
async def tail(name: str, *, limit: int = 20, utc: Utc = False, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Print the next records that an event stream gets, without moving it.

    Parameters
    ----------
    name
        The event stream.
    limit
        How many records.
    """
    async with connected(url) as engine:
        records = await engine.streams.tail(name, limit)
        if json:
            output.show_json(records)
            return
        output.show(_records(records, utc=utc) if records else f"event stream {name} has got everything")


def _since(typed: str, now: datetime) -> Since | datetime:
    """What was typed after ``--since``; raises InvalidInput."""
    named: dict[str, Since] = {"now": "now", "beginning": "beginning"}
    if typed in named:
        return named[typed]
    try:
        return datetime.fromisoformat(typed)
    except ValueError:
        return now - timedelta(seconds=text.seconds_of(typed))


async def _show(engine: Engine, views: list[EventStreamView], *, json: bool) -> None:
    if json:
        output.show_json(views)
        return
    now = await present(engine)
    output.show(_rows(views, now) if views else "there is no event stream")


def _rows(views: list[EventStreamView], now: datetime) -> Rows:
    """Event streams, one a row: what, where to, how far behind, and what keeps it."""
    rows = Rows("stream", "kinds", "events", "to", "behind", "oldest", "reader")
    for view in views:
        kinds = "all" if view.kinds is None else ", ".join(view.kinds)
        place, behind, oldest = view.to or "programs", f"{view.behind:,}", text.when(view.oldest, now)
        rows.add(view.name, text.cut(kinds, 60), view.events, place, behind, oldest, _reader(view))
    return rows


def _reader(view: EventStreamView) -> str:
    """Who reads it, and what has failed."""
    failed = f"failed {view.failures:,} times: {text.cut(view.error, 300)}" if view.failures else ""
    return "; ".join(part for part in (view.reader, failed) if part) or "nobody"


def _records(records: list[StreamRecord], *, utc: bool) -> Rows:
    rows = Rows("position", "at", "process", "run", "number", "type", "name", "payload")
    for record in records:
        process, at = f"{record.kind} {record.key or record.process}", text.clock(record.at, utc=utc)
        place, run, number = str(record.position), str(record.run), str(record.number)
        rows.add(place, at, process, run, number, record.type, record.name, _payload(record))
    return rows


def _payload(record: StreamRecord) -> str:
    if record.trouble is not None:
        return text.cut(record.trouble, _PAYLOAD)
    return "" if record.payload is None else text.value(record.payload, _PAYLOAD)
