"""What is wrong with many processes at once: failures by cause, and all that is unfinished by who moves it next."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Literal

from rich.text import Text

from perdure.cli import output, text
from perdure.cli.database import warn
from perdure.cli.options import DEFAULT_URL, Json, Url, connected, present
from perdure.cli.rows import Rows
from perdure.engine import Engine


@asynccontextmanager
async def looking(url: str) -> AsyncIterator[tuple[Engine, datetime]]:
    """An engine for a look at the database, and the present time; if recovery is paused, that is said."""
    async with connected(url) as engine:
        now = await present(engine)
        await warn(engine)
        yield engine, now


async def failures(
    where: str = "",
    *,
    kind: str | None = None,
    by: Literal["cause", "worker"] = "cause",
    limit: int = 20,
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Count failures by cause, the most frequent first.

    Failures of one workflow, one version, one step and one class of error are
    one line if their messages differ in numbers, ids and quoted values only.
    Its fingerprint finds its processes: perdure ps --where "fingerprint = ...".

    Parameters
    ----------
    where
        Only processes that fit this query: "kind = order and age < 2d".
    kind
        Only processes of this kind.
    by
        With "worker" also by the worker on which they have failed.
    limit
        How many lines to show.
    """
    async with looking(url) as (engine, now):
        found = await engine.failures(where, kind=kind, by=by)
        if json:
            output.show_json(found)
            return
        if not found:
            output.show("nothing has failed or is broken")
            return
        first = ("worker",) if by == "worker" else ()
        rows = Rows(*first, "fingerprint", "count", "last hour", "last", "kind", "step", "error")
        for one in found[:limit]:
            rows.add(
                *((one.worker or "-",) if first else ()), one.fingerprint,
                f"{one.count:,}", f"{one.recent:,}", text.when(one.last, now),
                one.kind, one.step or "-", Text(f"{one.type}: {one.message}".rstrip(": "), style="red"),
            )  # fmt: skip
        output.show(rows, "")
        total = sum(one.count for one in found)
        shown = "" if len(found) <= limit else f"; {limit} shown, the others: --limit {len(found)}"
        causes, workers = len({one.fingerprint for one in found}), len({one.worker for one in found})
        on = f" on {workers:,} workers" if first else ""
        output.show(f"{total:,} processes have failed or are broken{on}, by {causes:,} causes{shown}")


async def board(where: str = "", *, kind: str | None = None, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Count unfinished processes by who moves them next.

    Overdue are those at which somebody should have looked already.

    Parameters
    ----------
    where
        Only processes that fit this query: "kind = order and age > 1h".
    kind
        Only processes of this kind.
    """
    async with looking(url) as (engine, now):
        found = await engine.board(where, kind=kind)
        if json:
            output.show_json(found)
            return
        if not found:
            output.show("no process is unfinished")
            return
        rows = Rows("kind", "next mover", "count", "overdue", "since", "longest wait")
        for one in found:
            late = Text(f"{one.overdue:,}", style="red" if one.overdue else "")
            since = text.when(one.latest, now)
            rows.add(one.kind, one.mover, f"{one.count:,}", late, since, text.when(one.since, now))
        output.show(rows)
