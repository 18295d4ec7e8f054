"""Rounds of failure: a server crashed and started again, a primary replaced by its standby; under load each time."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from perdure.testing.postgres import Server
from tests.failover.cluster import Pair
from tests.failover.load import LossyLoad, under_load
from tests.kill.harness import LIMIT

HOW = {"immediate": signal.SIGQUIT, "kill -9": signal.SIGKILL}
BETWEEN = 60
"""So many effects happen between two failures."""

Told = Callable[[str], None]


async def restarts(
    rounds: int, folder: Path, told: Told = lambda text: None, settings: Sequence[str] = (), within: float = LIMIT
) -> str:
    """Crash one server again and again, by ``pg_ctl -m immediate``'s signal and by SIGKILL in turn."""
    with Server(settings) as server:
        async with under_load(server.fresh_database(), folder) as load:
            for done, (name, how) in zip(range(1, rounds + 1), itertools.cycle(HOW.items()), strict=False):
                await asyncio.to_thread(server.restart, how)
                await load.productive(within)
                await load.grown(BETWEEN)
                told(f"{done} restarts, the last by {name}; {len(load.finished):,} processes finished")
        return f"{rounds:,} restarts of PostgreSQL under load: {load.verdict}"


async def failovers(
    rounds: int, folder: Path, told: Told = lambda text: None, settings: Sequence[str] = (), within: float = LIMIT
) -> str:
    """Kill the primary and promote its synchronous standby, again and again; the dead one's port gets the next one."""
    with Pair(synchronous=True, settings=settings) as pair:
        database = pair.primary.fresh_database().rpartition("/")[2]
        async with under_load(pair.url(database), folder) as load:
            for done in range(1, rounds + 1):
                await asyncio.to_thread(pair.fail_over)
                await load.productive(within)
                await asyncio.to_thread(pair.follow)
                await load.grown(BETWEEN)
                told(f"{done} failovers; {len(load.finished):,} processes finished")
        return f"{rounds:,} failovers to a synchronous standby under load: {load.verdict}"


async def losses(rounds: int, folder: Path, told: Told = lambda text: None, settings: Sequence[str] = ()) -> str:
    """Cut the standby off, let work go on, kill the primary and promote the standby, which has nothing of that work."""
    with Pair(synchronous=False, settings=settings) as pair:
        database = pair.primary.fresh_database().rpartition("/")[2]
        async with under_load(pair.url(database), folder, kind=LossyLoad) as load:
            person = asyncio.create_task(load.look_after())
            for done in range(1, rounds + 1):
                await asyncio.to_thread(pair.sever)
                await load.grown(BETWEEN)
                await asyncio.to_thread(pair.fail_over)
                await load.grown(BETWEEN)
                await asyncio.to_thread(pair.follow)
                told(f"{done} failovers with loss; {len(load.finished):,} processes finished")
            load.stop()
            async with asyncio.timeout(LIMIT):
                while len(load.finished | load.lost | load.held) < len(load.started):
                    await asyncio.sleep(0.05)
            person.cancel()
        return f"{rounds:,} failovers to an asynchronous standby that lagged, under load: {load.verdict}"
