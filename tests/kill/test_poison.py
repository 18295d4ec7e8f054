"""A process that kills its worker, where the next worker comes late: its deaths are counted all the same."""

from __future__ import annotations

import asyncio

from perdure.engine import Engine
from perdure.kernel.process import Status
from tests.kill.harness import LIMIT, Harness
from tests.kill.workload import poison

SHORT = {"lease_seconds": 1.5, "beat_seconds": 0.3}
MOST_TRIES = 4


async def _lapsed(client: Engine, id: str) -> None:
    """Wait until the lease of the dead worker is over, as if the next were started only then."""
    async with asyncio.timeout(LIMIT):
        while ((await client.row(id)).due_at or 0) > await client.store.now():
            await asyncio.sleep(0.05)


async def test_rule_13_a_death_counts_although_the_next_worker_comes_only_after_the_lease(harness: Harness) -> None:
    """One worker that is started again late each time: nobody saw it die, and its lease is claimed at once."""
    async with Engine(harness.url, migrate=True) as client:
        handle = await client.start(poison)
        for _ in range(MOST_TRIES):
            child = await harness.start_worker(options=SHORT)
            async with asyncio.timeout(LIMIT):
                while child.returncode is None and (await client.row(handle.id)).status is Status.RUNNING:
                    await asyncio.sleep(0.05)
            if child.returncode is None:
                break
            await _lapsed(client, handle.id)
        assert (await client.row(handle.id)).status is Status.BROKEN
        assert harness.ledger.read_text().count("deadly:1") == 5, "twice with neighbours, then three times alone"
