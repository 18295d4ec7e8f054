"""What the law that nothing stands still does not accuse: a command that came too late for what it had taken."""

from __future__ import annotations

import asyncio

from perdure import limits, workflow
from perdure.clock import SECOND
from perdure.kernel.claim import Claim
from perdure.testing.simulator import Cluster, Swarm, simulate


@workflow
async def nap(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "awake"


async def taken_by_a_command(cluster: Cluster) -> None:
    """A command takes a process from its worker, and is never heard of again."""
    handle = await cluster.client.start(nap, 10.5)
    await asyncio.sleep(2)
    [row] = cluster.rows()
    lease = int(limits.SEIZED_SECONDS * SECOND)
    command = Claim(cluster.client.machine.new_id(), (), 1, lease, only=row.id, seize=True)
    assert (await cluster.client.store.claim(command)).claimed
    assert await handle.result() == "awake"


def test_a_process_that_a_command_took_and_left_goes_on_without_a_broken_law() -> None:
    for seed in range(3):
        simulate(taken_by_a_command, seed, workflows=[nap], swarm=Swarm()).check()
