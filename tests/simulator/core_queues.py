"""Tasks of a limited queue, by several shares, in every weather: a scenario for the tests of the simulator itself."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import ClassVar

from perdure import limits, step, workflow
from perdure.testing.simulator import Cluster
from tests.simulator.misfortune import result_of


@step(queue="bank", timeout=20)
async def pay(number: int) -> int:
    await asyncio.sleep(0.2)
    return number


@workflow
async def payments(first: int) -> int:
    return sum(await asyncio.gather(*(pay(first + more) for more in range(4))))


async def limited_queue(cluster: Cluster) -> None:
    await cluster.client.queues.limit("bank", concurrency=cluster.pick((2, 1, 3)))
    handles = [await cluster.client.start(payments, 10 * number) for number in range(4)]
    if cluster.chance(0.3):
        await asyncio.sleep(1)
        await cluster.client.queues.block("bank", who="anna", why="the bank is away")
        await asyncio.sleep(2)
        await cluster.client.queues.unblock("bank", who="anna")
    assert [await result_of(cluster, handle) for handle in handles] == [40 * number + 6 for number in range(4)]


@step(queue="till", timeout=20)
async def serve(customer: str, number: int) -> None:
    Till.passed()
    await asyncio.sleep(0.2)
    Till.served.setdefault((customer, number), len(Till.served))


class Till:
    """In which order the customers' wishes were served first.

    ``away`` are those of whom a wish was not due yet by the store's clock while somebody was served: that one stands
    still for a while after it was put back, and what a worker hands back then by its own time waits for so long. So are
    those of whom a wish was a suspect: it runs apart, and its worker has to be started first.
    """

    cluster: ClassVar[Cluster]
    served: ClassVar[dict[tuple[str, int], int]] = {}
    away: ClassVar[set[str | None]] = set()

    @classmethod
    def passed(cls) -> None:
        """Somebody's turn has come."""
        assert cls.cluster.server.connection is not None
        now = cls.cluster.server.connection.one("clock_mark")[0]
        rows = [row for row in cls.cluster.rows() if row.kind == "@till" and row.owner is None]
        suspects = {row.share for row in rows if row.deaths >= limits.SUSPECT_DEATHS}
        cls.away |= suspects | {row.share for row in rows if row.due_at is not None and row.due_at > now}


@workflow
async def customer(name: str, wishes: int) -> None:
    await asyncio.gather(*(serve.options(share=name)(name, number) for number in range(wishes)))


async def one_till(cluster: Cluster) -> None:
    """One place, a customer with many wishes, and others with few, who came later: theirs are not served last."""
    Till.cluster = cluster
    Till.served.clear()
    Till.away.clear()
    await cluster.client.queues.limit("till", concurrency=1)
    loud = await cluster.client.start(customer, "loud", 20)
    await asyncio.sleep(cluster.pick((0.5, 0.2, 1.0)))
    quiet = [await cluster.client.start(customer, name, 2) for name in ("quiet", "shy")]
    for handle in (loud, *quiet):
        await result_of(cluster, handle)
    last = {
        name: max(place for (one, _), place in Till.served.items() if one == name) for name in ("loud", "quiet", "shy")
    }
    asked = {name: place for name, place in last.items() if name not in Till.away}
    waited = max(asked.values(), default=0) > last["loud"]
    cluster.require("shares_take_turns", not waited, f"whoever had few wishes waited: {last}")


ASKED: list[int] = []
"""The numbers of those who were asked although their parent wanted them no more."""


@step(queue="office", timeout=20)
async def ask(number: int) -> None:
    ASKED.append(number)


@workflow
async def impatient(count: int, seconds: float) -> None:
    """Ask in an office that is closed, for a second; then go on, or not."""
    with suppress(TimeoutError):
        async with asyncio.timeout(1):
            await asyncio.gather(*(ask(number) for number in range(count)))
    if seconds:
        await asyncio.sleep(seconds)


async def given_up(cluster: Cluster) -> None:
    """Steps wait in a queue that is blocked until those who have asked for them have given them up: none is run."""
    ASKED.clear()
    await cluster.client.queues.block("office", who="anna", why="it is closed")
    seconds = cluster.pick((0.0, 3.0))
    handles = [await cluster.client.start(impatient, 4, seconds) for _ in range(2)]
    for handle in handles:
        await result_of(cluster, handle)
    await cluster.client.queues.unblock("office", who="anna")
    while any(not row.final for row in cluster.rows() if row.kind == "@office"):
        await asyncio.sleep(0.5)
    cluster.require("finished_is_final", not ASKED, f"steps {ASKED} were run although nobody wanted them any more")
