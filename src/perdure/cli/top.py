"""Workers and queues at a glance, as `top` shows programs: what their heartbeats tell, again and again."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated

from cyclopts import Parameter
from msgspec import Struct
from rich.console import Group
from rich.live import Live
from rich.text import Text

from perdure.cli import output, text, workers
from perdure.cli.options import DEFAULT_URL, Json, Url, connected, present
from perdure.cli.rows import Rows
from perdure.cli.workers import ENDS, Line, rate
from perdure.client.queue_figures import QueueFigures, queue_figures
from perdure.engine import Engine
from perdure.errors import InvalidInput, StoreUnavailable

NAME_WIDTH = 26
WAITS_LONG_SECONDS = 60.0


class Glance(Struct, frozen=True):
    """What one refresh shows."""

    at: datetime
    workers: list[Line]
    queues: list[QueueFigures]


async def top(
    *,
    every: str = "2s",
    once: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Watch workers and queues: rates, what they hold, what waits.

    Rates and counters come with each worker's heartbeat (every 3 s). Ends
    with Ctrl-C; --json prints once.

    Parameters
    ----------
    every
        How often to look: 500ms, 2s, 1m.
    once
        Print once and end.
    """
    pause = text.seconds_of(every)
    if not 0.1 <= pause <= 3600:
        raise InvalidInput(f"--every {every!r:.40} is too often or too seldom; give 100ms to 1h")
    async with connected(url) as engine:
        glance = await look(engine)
        if json:
            output.show_json(glance)
        elif once:
            output.show(*parts(glance))
        else:
            await _watch(engine, glance, pause)


async def look(engine: Engine) -> Glance:
    """Read what is shown."""
    now = await present(engine)
    return Glance(now, await workers.seen(engine, now), await queue_figures(engine.store))


async def _watch(engine: Engine, glance: Glance, pause: float) -> None:
    with Live(_page(glance), console=output.console(), screen=output.console().is_terminal, auto_refresh=False) as live:
        while True:
            await asyncio.sleep(pause)
            try:
                glance = await look(engine)
            except StoreUnavailable as error:  # it goes on when the database is back
                live.update(Group(Text(f"{error}"[:200], style="red"), _page(glance)), refresh=True)
            else:
                live.update(_page(glance), refresh=True)


def _page(glance: Glance) -> Group:
    return Group(*map(output.harmless, parts(glance)))


def parts(glance: Glance) -> list[Text | Rows]:
    """The page: a line about all, then the workers, then the queues."""
    shown: list[Text | Rows] = [_all(glance)]
    if glance.workers:
        shown += [Text(""), _workers(glance)]
    if glance.queues:
        shown += [Text(""), _queues(glance)]
    return shown


def _all(glance: Glance) -> Text:
    alive = [line for line in glance.workers if line.state != "silent"]
    rates = {name: sum(line.rates.get(name, 0.0) for line in alive) for name in ("steps", "step_failures", *ENDS)}
    held, slots = sum(line.held for line in alive), sum(line.slots for line in alive)
    silent = len(glance.workers) - len(alive)
    told = [
        text.clock(glance.at, utc=False),
        f"{len(alive)} workers" + (f", {silent} silent" if silent else ""),
        f"held {held:,} of {slots:,}",
        f"{rate(rates, 'steps')} steps/s",
        f"{rate(rates, *ENDS)} ends/s",
    ]
    return Text("  ".join(told), style="red" if silent or not alive else "")


def _workers(glance: Glance) -> Rows:
    rows = Rows("worker", "state", "held", "free", "steps/s", "errors/s", "ends/s", "polled")
    for line in glance.workers:
        rows.add(
            text.cut(f"{line.host}:{line.pid}", NAME_WIDTH),
            line.state,
            f"{line.held:,}",
            f"{max(0, line.slots - line.held):,}",
            rate(line.rates, "steps"),
            rate(line.rates, "step_failures"),
            rate(line.rates, *ENDS),
            text.when(line.polled_at, glance.at) or "never",
        )
    return rows


def _queues(glance: Glance) -> Rows:
    rows = Rows("queue", "waiting", "delayed", "running", "oldest", "workers")
    for queue in glance.queues:
        late = "red" if queue.oldest > WAITS_LONG_SECONDS or (queue.waiting and not queue.workers) else ""
        rows.add(
            Text(text.cut(queue.name, NAME_WIDTH), style=late),
            f"{queue.waiting:,}",
            f"{queue.delayed:,}",
            f"{queue.running:,}",
            text.span(queue.oldest) if queue.oldest else "",
            f"{queue.workers}" if queue.workers else "none",
        )
    return rows
