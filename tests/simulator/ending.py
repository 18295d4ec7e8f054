"""How an order of a scenario comes to its end: looked at from outside, again and again, for long enough."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from perdure import Handle
from perdure.kernel.process import FINAL, Process
from perdure.testing.simulator import Cluster

LOOKS = 1_200
"""So many looks, every half second, must suffice for an order to end; what is left to others waits 30 s at most."""


async def ends_with(
    cluster: Cluster, handle: Handle[int], exact: int, told: str, look: Callable[[Process], None] = lambda row: None
) -> None:
    """It comes to its exact value, and no person has to do anything for it; ``look`` is shown each row before that."""
    for _ in range(LOOKS):
        row = await cluster.client.row(handle.id_bytes)
        if row.status in FINAL:
            cluster.require("the_value_is_exact", row.result == b"%d" % exact, f"{told} came to {row.result!r}")
            return
        look(row)
        await asyncio.sleep(0.5)
    cluster.require("liveness", False, f"{told} does not end: it waits for {row.awaiting}")
