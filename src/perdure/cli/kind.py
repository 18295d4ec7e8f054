"""Kinds with limits at the terminal: how many of their processes run and wait, and what the limits are."""

from __future__ import annotations

from datetime import datetime

from cyclopts import App

from perdure.cli import output, text
from perdure.cli.options import DEFAULT_URL, ORIGIN, Json, Url, Who, Why, connected, present, user
from perdure.cli.rows import Rows
from perdure.client.kinds import KindView
from perdure.engine import Engine
from perdure.errors import DefinitionError, InvalidInput
from perdure.kernel.kind import Limits

kind = App(name="kind", help="Show and limit kinds of processes.", help_format="plaintext")


@kind.command(name=("ls", "list"))
async def ls(*, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """List the kinds that have limits, or had some: what runs and what waits for a place.

    Oldest is how long the process that is first in turn has waited.
    """
    async with connected(url) as engine:
        await _show(engine, await engine.kinds.list(), json=json)


@kind.command
async def limit(
    name: str,
    *,
    running: int | None = None,
    starts: int | None = None,
    per: str | None = None,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Set the limits of a kind, for all workers together; what is over them waits.

    Limits that are not given are removed.

    Parameters
    ----------
    name
        The kind of process.
    running
        How many of its processes run at once, at most: those that have begun and have not ended.
    starts
        How many of them begin, at most, in the time given by --per.
    per
        The time for --starts: 1s, 15m, 2h.
    """
    try:
        limits = Limits(running=running, starts=starts, per=None if per is None else text.seconds_of(per))
    except DefinitionError as error:
        raise InvalidInput(str(error)) from None
    async with connected(url) as engine:
        seen = await engine.kinds.limit(name, limits, who=who or user(), why=why, origin=ORIGIN)
        await _show(engine, [seen], json=json)


@kind.command
async def unlimit(name: str, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Take the limits of a kind away: all that waits for a place goes on.

    Parameters
    ----------
    name
        The kind of process.
    """
    async with connected(url) as engine:
        seen = await engine.kinds.unlimit(name, who=who or user(), why=why, origin=ORIGIN)
        await _show(engine, [seen], json=json)


async def _show(engine: Engine, views: list[KindView], *, json: bool) -> None:
    if json:
        output.show_json(views)
        return
    now = await present(engine)
    output.show(_rows(views, now) if views else "no kind has limits, and none has had some")


def _rows(views: list[KindView], now: datetime) -> Rows:
    """Kinds, one a row, with their limits and who has set them."""
    rows = Rows("kind", "waiting", "running", "oldest", "limits", "set")
    for view in views:
        rows.add(
            view.kind, f"{view.waiting:,}", f"{view.admitted:,}", text.span(view.oldest) if view.oldest else "",
            _limits(view), _set(view, now),
        )  # fmt: skip
    return rows


def _limits(view: KindView) -> str:
    parts = []
    if view.running is not None:
        parts.append(f"{view.admitted} of {view.running} at once")
    if view.starts is not None:
        parts.append(f"{view.starts} in {text.span(view.per)}")
    return ", ".join(parts) or "none"


def _set(view: KindView, now: datetime) -> str:
    by = "its workflow" if view.origin == "workflow" else view.who or "an unnamed user"
    why = f": {view.why}" if view.why and view.origin != "workflow" else ""
    return text.cut(f"by {by}, {text.when(view.changed_at, now)}{why}", 300)
