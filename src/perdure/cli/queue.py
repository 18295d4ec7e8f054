"""Queues at the terminal: what waits and runs in each, their limits, and whether they are blocked."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from cyclopts import App
from rich.text import Text

from perdure.cli import output, text
from perdure.cli.options import DEFAULT_URL, ORIGIN, Json, Switch, Url, Who, Why, connected, present, user
from perdure.cli.rows import Rows
from perdure.engine import Engine

if TYPE_CHECKING:
    from perdure.client.queues import QueueView

queue = App(name="queue", help="Show, limit, block and unblock queues.", help_format="plaintext")


@queue.command
async def ls(*, unpolled: Switch = False, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """List queues: what waits and runs, who serves them, their limits.

    Oldest is how long the step that was due first has waited.

    Parameters
    ----------
    unpolled
        Only queues in which steps wait that no live worker serves.
    """
    async with connected(url) as engine:
        views = await engine.queues.list(unpolled=unpolled)
        if unpolled and not views and not json:
            output.show("every queue in which steps wait is served by a live worker")
            return
        await _show(engine, views, json=json)


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
    rows = Rows("queue", "waiting", "running", "oldest", "workers", "limits", "blocked")
    for view in views:
        rows.add(
            view.name, f"{view.waiting:,}", f"{view.running:,}", text.span(view.oldest) if view.oldest else "",
            _served(view, now), _limits(view), _blocked(view, now),
        )  # fmt: skip
    return rows


def _served(view: QueueView, now: datetime) -> Text:
    """How many live workers serve it; red if steps wait for one that is not there."""
    told = f"{view.workers:,}"
    if not view.workers and view.polled_at is not None:
        told += f", the last {text.when(view.polled_at, now)}"
    elif view.workers and view.unpolled:
        told += ", none for a label"
    return Text(told, style="red" if view.unpolled else "")


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
