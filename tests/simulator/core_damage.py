"""Bills whose rows are damaged by hand while workers run, in every weather: each damage hurts its own bill alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from perdure import Handle, receive, step, workflow
from perdure.kernel.event import EventType
from perdure.kernel.process import FINAL, Status
from perdure.testing.simulator import Cluster

PATIENCE = 400
"""So many looks, every half second, must suffice for a bill to end, or to be parked."""

IN_THE_MIDDLE = (
    "UPDATE event SET type = 77 WHERE process = :id AND number = 1 RETURNING 1",
    "DELETE FROM event WHERE process = :id AND number = 1 RETURNING 1",
    "UPDATE event SET place = CAST(x'ff' AS TEXT) WHERE process = :id AND number = 1 RETURNING 1",
)
"""What only a replay reads: a worker that has the process in memory reads its last event and what is new.

The same holds of messages that it has heard.
"""
MESSAGE_GONE = "DELETE FROM message WHERE process = :id AND number = 1 RETURNING 1"
OF_MESSAGES = ("UPDATE message SET type = 77 WHERE process = :id AND number = 1 RETURNING 1", MESSAGE_GONE)
DAMAGES = (
    *IN_THE_MIDDLE,
    "UPDATE event SET type = 77 WHERE process = :id AND number = (SELECT max(number) FROM event WHERE process = :id) "
    "RETURNING 1",
    "DELETE FROM event WHERE process = :id AND number = (SELECT max(number) FROM event WHERE process = :id) "
    "RETURNING 1",
    *OF_MESSAGES,
    "UPDATE process SET events = events + 1 WHERE id = :id RETURNING 1",
)
"""Each answers a row if it has altered something; then whoever claims the process cannot read it."""

begun: Counter[tuple[int, int]] = Counter()


@step
async def charge(bill: int, part: int) -> int:
    begun[bill, part] += 1
    await asyncio.sleep(0.1)
    return part


@workflow(name="damaged bill")
async def bill(number: int, pause: bool) -> int:
    """What it has received counts by its order; half of the bills wait for it as soon as their first charge is made."""
    total = await charge(number, 1)
    if pause:
        await asyncio.sleep(0.5)
    total += await receive("go", int)
    total += 2 * await receive("go", int)
    await asyncio.sleep(0.5)
    return total + await charge(number, 2)


class Bills:
    """The bills of one history: how often the first charge of a damaged one had begun, and which none can read.

    The first is known only where that charge was recorded before the damage. The second are those that were damaged
    while nobody had them in hand: from then on whoever claims them sees the damage. ``remembered`` are the others that
    were let go: damaged in the middle of a history that a worker has in memory. Of others in memory, ``forgotten``, the
    store has lost a signal that they have heard: with it the key by which it would know a second one.
    """

    def __init__(self, cluster: Cluster, handles: list[Handle[int]]) -> None:
        self.cluster = cluster
        self.handles = handles
        self.paid: dict[int, int | None] = {}
        self.unreadable: set[int] = set()
        self.remembered: set[int] = set()
        self.forgotten: set[int] = set()

    def damage(self, number: int, damages: Sequence[str]) -> None:
        """Damage one of them."""
        id = self.handles[number].id_bytes
        known = self.cluster.monitor.known[id]
        done = any(event.type is EventType.STEP_COMPLETED for event in known.events)
        resting = known.process.status is Status.RUNNING and known.process.owner is None
        how = self.cluster.pick(damages)
        before = known.process.seen if how in OF_MESSAGES else how in IN_THE_MIDDLE and len(known.events) > 1
        remembered = self.in_memory(id)
        if self.cluster.damage(id, how):
            if resting:
                (self.remembered if remembered and before else self.unreadable).add(number)
            if remembered and how == MESSAGE_GONE:
                self.forgotten.add(number)
        self.paid.setdefault(number, begun[number, 1] if done else None)

    def in_memory(self, id: bytes) -> bool:
        """Whether a worker that runs holds this process, or has let it go and has it in memory still."""
        workers = [node.engine.worker for node in self.cluster.workers if node.alive and node.engine is not None]
        schedulers = [worker.scheduler for worker in workers if worker is not None]
        return any(id in one.cache.rows or id in one.instances for one in schedulers)


async def damaging(cluster: Cluster) -> None:
    """Some bills, of which half are damaged at any moment; then the storm is over, and each is looked at."""
    begun.clear()
    many = 2 * cluster.pick((2, 1, 4))
    bills = Bills(cluster, [await cluster.client.start(bill, number, number % 4 < 2) for number in range(many)])
    for number, handle in enumerate(bills.handles):
        sent = cluster.pick((False, True))
        if sent:
            await handle.signal("go", 10, key="go 1")
            if cluster.pick((False, True)):
                await handle.signal("go", 100, key="go 2")
        at_once = sent and cluster.pick((False, True))
        if not at_once:
            await asyncio.sleep(0.1 * cluster.draw(10))
        if number % 2:
            bills.damage(
                number - cluster.pick((0, 2)) if number > 1 and not at_once else number,
                OF_MESSAGES if at_once else DAMAGES,
            )
    await asyncio.sleep(cluster.pick((5.0, 20.0, 1.0)))
    cluster.heal()
    for number, handle in enumerate(bills.handles):
        for key, value in (("go 1", 10), ("go 2", 100)):
            if (await cluster.client.row(handle.id_bytes)).status is Status.RUNNING:
                await handle.signal("go", value, key=key)
        await _looked_at(bills, number)
        once = bills.paid.get(number) in (None, begun[number, 1])
        cluster.require(
            "nothing_is_done_again", once, f"the first charge of bill {number} was recorded, and begun again"
        )


async def _looked_at(bills: Bills, number: int) -> None:
    """It ends with its exact value; if it was damaged it may be parked instead, and then a person can end it."""
    cluster, handle = bills.cluster, bills.handles[number]
    for _ in range(PATIENCE):
        row = await cluster.client.row(handle.id_bytes)
        if row.status in FINAL:
            exact = row.result == b"213" or (row.result == b"33" and number in bills.forgotten)
            cluster.require("the_value_is_exact", exact, f"bill {number} came to {row.result!r}")
            text = f"bill {number} was damaged in nobody's hand, and has ended"
            cluster.require("what_cannot_be_read_is_parked", number not in bills.unreadable, text)
            cluster.probe("a damaged process ended from memory", int(number in bills.remembered))
            return
        if row.status is Status.BROKEN:
            damaged = number in bills.paid
            cluster.require("one_bad_row_hurts_only_itself", damaged, f"bill {number} is broken: {row.error!r}")
            cluster.probe("a damaged process was parked")
            cluster.probe("a process that was damaged in nobody's hand was parked", int(number in bills.unreadable))
            await handle.terminate(who="Ann", why="it is damaged")
            row = await cluster.client.row(handle.id_bytes)
            cluster.require("terminate_works", row.status in FINAL, f"bill {number} is {row.status}")
            return
        await asyncio.sleep(0.5)
    cluster.require("liveness", False, f"bill {number} neither ends nor is parked")
