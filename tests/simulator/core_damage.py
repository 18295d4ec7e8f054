"""Bills whose rows are damaged by hand while workers run, in every weather: each damage hurts its own bill alone."""

from __future__ import annotations

import asyncio
from collections import Counter

from perdure import Handle, receive, step, workflow
from perdure.kernel.event import EventType
from perdure.kernel.process import FINAL, Status
from perdure.testing.simulator import Cluster

PATIENCE = 400
"""So many looks, every half second, must suffice for a bill to end, or to be parked."""

DAMAGES = (
    "UPDATE event SET type = 77 WHERE process = ?1 AND number = 1",
    "UPDATE event SET type = 77 WHERE process = ?1 AND number = (SELECT max(number) FROM event WHERE process = ?1)",
    "DELETE FROM event WHERE process = ?1 AND number = 1",
    "DELETE FROM event WHERE process = ?1 AND number = (SELECT max(number) FROM event WHERE process = ?1)",
    "UPDATE message SET type = 77 WHERE process = ?1 AND number = 1",
    "DELETE FROM message WHERE process = ?1 AND number = 1",
    "UPDATE event SET place = CAST(x'ff' AS TEXT) WHERE process = ?1 AND number = 1",
    "UPDATE process SET events = events + 1 WHERE id = ?1",
)

begun: Counter[tuple[int, int]] = Counter()


@step
async def charge(bill: int, part: int) -> int:
    begun[bill, part] += 1
    await asyncio.sleep(0.1)
    return part


@workflow(name="damaged bill")
async def bill(number: int) -> int:
    total = await charge(number, 1)
    await asyncio.sleep(0.5)
    total += await receive("go", int)
    return total + await charge(number, 2)


async def damaging(cluster: Cluster) -> None:
    """Some bills, of which half are damaged at any moment; then the storm is over, and each is looked at."""
    begun.clear()
    handles = [await cluster.client.start(bill, number) for number in range(2 * cluster.pick((2, 1, 4)))]
    paid: dict[int, int | None] = {}  # how often its first charge had begun when it was damaged, if that was recorded
    for number, handle in enumerate(handles):
        if cluster.pick((False, True)):
            await handle.signal("go", 10)
        await asyncio.sleep(0.1 * cluster.draw(10))
        if number % 2:
            victim = number - cluster.pick((0, 2)) if number > 1 else number
            id = handles[victim].id_bytes
            done = any(event.type is EventType.STEP_COMPLETED for event in cluster.monitor.known[id].events)
            cluster.damage(id, cluster.pick(DAMAGES))
            paid.setdefault(victim, begun[victim, 1] if done else None)
    await asyncio.sleep(cluster.pick((5.0, 20.0, 1.0)))
    cluster.heal()
    for number, handle in enumerate(handles):
        if (await cluster.client.row(handle.id_bytes)).status is Status.RUNNING:
            await handle.signal("go", 10, key="go")
        await _looked_at(cluster, number, handle, damaged=number in paid)
        once = paid.get(number) in (None, begun[number, 1])
        cluster.require(
            "nothing_is_done_again", once, f"the first charge of bill {number} was recorded, and begun again"
        )


async def _looked_at(cluster: Cluster, number: int, handle: Handle[int], *, damaged: bool) -> None:
    """It ends with its exact value; if it was damaged it may be parked instead, and then a person can end it."""
    for _ in range(PATIENCE):
        row = await cluster.client.row(handle.id_bytes)
        if row.status in FINAL:
            cluster.require("the_value_is_exact", row.result == b"13", f"bill {number} came to {row.result!r}")
            return
        if row.status is Status.BROKEN:
            cluster.require("one_bad_row_hurts_only_itself", damaged, f"bill {number} is broken: {row.error!r}")
            cluster.probe("a damaged process was parked")
            await handle.terminate(who="Ann", why="it is damaged")
            row = await cluster.client.row(handle.id_bytes)
            cluster.require("terminate_works", row.status in FINAL, f"bill {number} is {row.status}")
            return
        await asyncio.sleep(0.5)
    cluster.require("liveness", False, f"bill {number} neither ends nor is parked")
