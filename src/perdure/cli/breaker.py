"""Circuit breakers at the terminal: which are open, since when and why; opened, closed and reset by hand."""

from __future__ import annotations

from datetime import datetime

from cyclopts import App

from perdure.cli import output, text
from perdure.cli.options import DEFAULT_URL, ORIGIN, Json, Url, Who, Why, connected, present, user
from perdure.cli.rows import Rows
from perdure.client.breakers import BreakerView
from perdure.engine import Engine

breaker = App(name="breaker", help="Show, open, close and reset circuit breakers.", help_format="plaintext")


@breaker.command
async def ls(*, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """List circuit breakers: those that have ever counted a failure or were set by hand."""
    async with connected(url) as engine:
        await _show(engine, await engine.breakers.list(), json=json)


@breaker.command
async def show(name: str, *, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Show one circuit breaker.

    Parameters
    ----------
    name
        The breaker.
    """
    async with connected(url) as engine:
        await _show(engine, [await engine.breakers.state(name)], json=json)


@breaker.command(name="open")
async def keep_open(name: str, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Keep a breaker open: no attempt of its steps is made until it is closed or reset.

    Parameters
    ----------
    name
        The breaker.
    """
    async with connected(url) as engine:
        seen = await engine.breakers.open(name, who=who or user(), why=why, origin=ORIGIN)
        await _show(engine, [seen], json=json)


@breaker.command
async def close(name: str, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Keep a breaker closed: attempts are made, whatever fails, until it is opened or reset.

    Parameters
    ----------
    name
        The breaker.
    """
    async with connected(url) as engine:
        seen = await engine.breakers.close(name, who=who or user(), why=why, origin=ORIGIN)
        await _show(engine, [seen], json=json)


@breaker.command
async def reset(name: str, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Close a breaker with nothing counted; from now on failures open it by themselves.

    Parameters
    ----------
    name
        The breaker.
    """
    async with connected(url) as engine:
        seen = await engine.breakers.reset(name, who=who or user(), why=why, origin=ORIGIN)
        await _show(engine, [seen], json=json)


async def _show(engine: Engine, views: list[BreakerView], *, json: bool) -> None:
    if json:
        output.show_json(views)
        return
    now = await present(engine)
    output.show(_rows(views, now) if views else "no breaker has counted a failure, and none was set by hand")


def _rows(views: list[BreakerView], now: datetime) -> Rows:
    """Breakers, one a row: how they stand, since when, until when and why."""
    rows = Rows("breaker", "state", "since", "until", "why")
    for view in views:
        rows.add(view.name, view.state, text.when(view.since, now), text.when(view.until, now), _why(view))
    return rows


def _why(view: BreakerView) -> str:
    if view.forced:
        why = f": {view.why}" if view.why else ""
        return text.cut(f"by {view.who or 'an unnamed user'}{why}", 300)
    if view.failures:
        return f"{view.failures:,} failures counted"
    return text.cut(view.reason, 300)
