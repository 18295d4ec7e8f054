"""Leaders at the terminal: which program leads in what, since when and until when; and asking one to stop."""

from __future__ import annotations

from datetime import datetime

from cyclopts import App

from perdure.cli import output, text
from perdure.cli.options import DEFAULT_URL, ORIGIN, Json, Url, Who, Why, connected, present, user
from perdure.cli.rows import Rows
from perdure.client.leaders import LeaderView
from perdure.engine import Engine

leader = App(name="leader", help="Show which programs lead, and ask one to stop.", help_format="plaintext")


@leader.command
async def ls(*, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """List everything in which a program leads or has led."""
    async with connected(url) as engine:
        await _show(engine, await engine.leaders.list(), json=json)


@leader.command
async def release(name: str, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Ask the program that leads to stop, so that another one may lead.

    Parameters
    ----------
    name
        In what it leads.
    """
    async with connected(url) as engine:
        seen = await engine.leaders.release(name, who=who or user(), why=why, origin=ORIGIN)
        await _show(engine, [seen], json=json)


async def _show(engine: Engine, views: list[LeaderView], *, json: bool) -> None:
    if json:
        output.show_json(views)
        return
    now = await present(engine)
    output.show(_rows(views, now) if views else "no program has ever led here")


def _rows(views: list[LeaderView], now: datetime) -> Rows:
    """Leaders, one a row: which program in which term, since when, until when, and what a person has said."""
    rows = Rows("leader", "program", "term", "since", "until", "why")
    for view in views:
        program = view.program if view.leads else f"none (last: {view.program})"
        rows.add(view.name, program, str(view.term), text.when(view.since, now), text.when(view.until, now), _why(view))
    return rows


def _why(view: LeaderView) -> str:
    if not view.released:
        return ""
    return text.cut(f"released by {view.who or 'an unnamed user'}" + (f": {view.why}" if view.why else ""), 300)
