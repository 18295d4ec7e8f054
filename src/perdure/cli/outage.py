"""Outages at the terminal: which kinds of process are held, since when and why; begun and ended by hand."""

from __future__ import annotations

from datetime import datetime

from cyclopts import App

from perdure.cli import output, text
from perdure.cli.options import DEFAULT_URL, ORIGIN, Json, Url, Who, Why, connected, present, user
from perdure.cli.rows import Rows
from perdure.client.outages import OutageView
from perdure.engine import Engine

outage = App(name="outage", help="Show, begin and end outages of kinds of processes.", help_format="plaintext")


@outage.command
async def ls(*, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """List the kinds that are held, were held once, or of which failures are counted."""
    async with connected(url) as engine:
        await _show(engine, await engine.outages.list(), json=json)


@outage.command
async def begin(kind: str, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Hold a kind: its processes wait until the outage is ended by hand.

    Parameters
    ----------
    kind
        The kind of process; a queue is named @bank.
    """
    async with connected(url) as engine:
        seen = await engine.outages.begin(kind, who=who or user(), why=why, origin=ORIGIN)
        await _show(engine, [seen], json=json)


@outage.command
async def end(kind: str, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Let a kind go on, few processes at first; from now on failures are counted anew.

    Parameters
    ----------
    kind
        The kind of process; a queue is named @bank.
    """
    async with connected(url) as engine:
        seen = await engine.outages.end(kind, who=who or user(), why=why, origin=ORIGIN)
        await _show(engine, [seen], json=json)


async def _show(engine: Engine, views: list[OutageView], *, json: bool) -> None:
    if json:
        output.show_json(views)
        return
    now = await present(engine)
    output.show(_rows(views, now) if views else "no kind has an outage, and none has had one")


def _rows(views: list[OutageView], now: datetime) -> Rows:
    """Kinds, one a row: whether they are held, since when, until when and why."""
    rows = Rows("kind", "state", "since", "canaries from", "failing alike", "why")
    for view in views:
        state = "held" if view.held else "goes on"
        rows.add(
            view.kind, state, text.when(view.since, now), text.when(view.until, now), f"{view.failing:,}",
            text.cut(view.reason, 300),
        )  # fmt: skip
    return rows
