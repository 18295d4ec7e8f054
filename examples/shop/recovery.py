"""The recoveries: what had to be put right on the way, told from what the engine has written down."""

from __future__ import annotations

import asyncio

from examples.shop.books import asked_again
from examples.shop.play import Play
from perdure import Search


async def recoveries(play: Play) -> list[tuple[str, str]]:
    """What happened and how often, from the histories, the worker table and the workers' own counters."""
    rows = await play.engine.list(Search(key_prefix=play.prefix, limit=len(play.orders)))
    histories = await asyncio.gather(*(play.engine.process(row.id).history() for row in rows))
    revivals = [sum(event.type.name == "REVIVED" for event in history) for history in histories]
    failures = sum(event.type.name == "ATTEMPT_FAILED" for history in histories for event in history)
    names = {str(hand.process.pid) for hand in play.staff.hands}
    workers = await play.engine.store.workers(ended=True)
    dead = sum(worker.died for worker in workers if worker.name.rpartition(":")[2] in names)

    def counted(name: str) -> int:
        return int(sum(hand.counters.get(name, 0) for hand in play.staff.hands))

    return [
        ("workers found dead", f"{dead} (the lock that the system frees at a death was free)"),
        ("workers found silent", f"{counted('workers_silent')} (no beat came within the lease)"),
        ("orders revived by another worker", str(sum(map(bool, revivals)))),
        ("late answers refused", f"{counted('commits_refused')} (their tokens were old)"),
        ("orders let go by a late worker", f"{counted('leases_lost')} (it saw that its leases were over)"),
        ("step attempts failed and tried again", str(failures)),
        ("effects asked for twice, given once", str(await asked_again(play.shop))),
    ]
