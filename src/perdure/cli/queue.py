"""Queues at the terminal: what waits and runs in each, its limits, and whether it is blocked."""

from __future__ import annotations

from datetime import datetime

from cyclopts import App
from rich.table import Table
from rich.text import Text

from perdure.cli import output, table, text
from perdure.cli.options import DEFAULT_URL, ORIGIN, Json, Url, Who, Why, connected, user
from perdure.client.queues import QueueView
from perdure.client.view import instant
from perdure.engine import Engine

queue = App(name="queue", help="See queues, limit them, block and unblock them.", help_format="plaintext")


@queue.command
async def ls(*, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """List queues: what waits and runs, the limits, who blocked them since when and why."""
    async with connected(url) as engine:
        await _show(engine, await engine.queues.list(), json=json)


@queue.command
async def limit(
    name: str,
    *,
    concurrency: int | None = None,
    rate: int | None = None,
    per: str | None = None,
    share_concurrency: int | None = None,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Set the limits of a queue over all workers; those not given are taken away.

    Parameters
    ----------
    name
        The queue.
    concurrency
        How much runs at once, at most: the sum of the costs.
    rate
        How much begins, at most, in the time given by --per.
    per
        The time for --rate: 1s, 15m, 2h; a second if it is not given.
    share_concurrency
        How much runs at once for each share, at most.
    """
    async with connected(url) as engine:
        seen = await engine.queues.limit(
            name,
            concurrency=concurrency,
            rate=rate,
            per=None if per is None else text.seconds_of(per),
            share_concurrency=share_concurrency,
            who=who or user(),
            why=why,
            origin=ORIGIN,
        )
        await _show(engine, [seen], json=json)


@queue.command
async def block(name: str, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Let nothing more of a queue begin; what runs goes on.

    Parameters
    ----------
    name
        The queue.
    """
    async with connected(url) as engine:
        seen = await engine.queues.block(name, who=who or user(), why=why, origin=ORIGIN)
        await _show(engine, [seen], json=json)


@queue.command
async def unblock(name: str, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Let what waits in a queue begin again, within its limits.

    Parameters
    ----------
    name
        The queue.
    """
    async with connected(url) as engine:
        seen = await engine.queues.unblock(name, who=who or user(), why=why, origin=ORIGIN)
        await _show(engine, [seen], json=json)


async def _show(engine: Engine, views: list[QueueView], *, json: bool) -> None:
    if json:
        output.show_json(views)
        return
    now = instant(await engine.store.now())
    assert now is not None
    output.show(_table(views, now) if views else "no queue has a limit, and nothing waits in any")


def _table(views: list[QueueView], now: datetime) -> Table:
    """Queues, one a row, with what they may do and who has blocked them."""
    grid = table.empty("queue", "waiting", "running", "limits", "blocked")
    for view in views:
        grid.add_row(
            Text(view.name), f"{view.waiting:,}", f"{view.running:,}", _limits(view), Text(_blocked(view, now))
        )
    return grid


def _limits(view: QueueView) -> str:
    parts = []
    if view.concurrency is not None:
        parts.append(f"{view.full} of {view.concurrency} at once")
    if view.share_concurrency is not None:
        parts.append(f"{view.share_concurrency} a share")
    if view.rate is not None:
        parts.append(f"{view.rate} in {text.span(view.per)}")
    return ", ".join(parts) or "none"


def _blocked(view: QueueView, now: datetime) -> str:
    if view.blocked_at is None:
        return ""
    why = f": {view.blocked_why}" if view.blocked_why else ""
    return text.cut(f"by {view.blocked_by or 'somebody'}, {text.when(view.blocked_at, now)}{why}", 300)
