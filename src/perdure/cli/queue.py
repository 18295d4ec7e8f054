"""Queues at the terminal: what waits and runs in each, their limits, and whether they are blocked."""

from __future__ import annotations

from datetime import datetime

from cyclopts import App

from perdure.cli import output, text
from perdure.cli.options import DEFAULT_URL, ORIGIN, Json, Url, Who, Why, connected, present, user
from perdure.cli.rows import Rows
from perdure.client.queues import QueueView
from perdure.engine import Engine

queue = App(name="queue", help="Show, limit, block and unblock queues.", help_format="plaintext")


@queue.command
async def ls(*, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """List queues: what waits and runs, limits, and who blocked them.

    Oldest is how long the task that was due first has waited. Polled is
    when a worker last looked for tasks of that queue: a queue that no
    worker serves waits until one does.
    """
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
    """Set the limits of a queue, for all workers together.

    Limits that are not given are removed.

    Parameters
    ----------
    name
        The queue.
    concurrency
        How much runs at once, at most: the sum of the costs.
    rate
        How much begins, at most, in the time given by --per.
    per
        The time for --rate: 1s, 15m, 2h. Default: one second.
    share_concurrency
        How much runs at once of each share, at most.
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
    """Stop new tasks of a queue from beginning; those that run go on.

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
    """Let the tasks of a queue begin again, within its limits.

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
    now = await present(engine)
    output.show(_rows(views, now) if views else "no queue has a limit, and nothing waits in any")


def _rows(views: list[QueueView], now: datetime) -> Rows:
    """Queues, one a row, with their limits and who has blocked them."""
    rows = Rows("queue", "waiting", "running", "limits", "oldest", "polled", "blocked")
    for view in views:
        rows.add(
            view.name,
            f"{view.waiting:,}",
            f"{view.running:,}",
            _limits(view),
            text.span(view.oldest) if view.oldest else "",
            text.when(view.polled_at, now) or "never",
            _blocked(view, now),
        )
    return rows


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
    return text.cut(f"by {view.blocked_by or 'an unnamed user'}, {text.when(view.blocked_at, now)}{why}", 300)
