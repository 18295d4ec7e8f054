"""Timers of one process, side by side: each fires soon after its time, wherever nothing has struck its workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

from perdure import Retry, attempt, now, process_id, step, workflow
from perdure.clock import SECOND
from perdure.kernel.names import id_bytes
from perdure.testing.simulator import Cluster, Node, Swarm
from perdure.testing.simulator.choice import Choices
from perdure.testing.simulator.stillness import Stillness
from perdure.testing.simulator.swarm import SCALES
from tests.simulator.misfortune import result_of
from tests.simulator.witness import Locks

WAITS = (0.2, 3.0, 15.0, 60.0)
"""What lies between two timers here is more than any of them may be late, unless calls take seconds."""
DAY = 86_400.0


class Desk:
    """Who is told of each timer for which code has waited, in a replay too: when it was due, and its turn's time."""

    fired: Callable[[str, datetime, float, datetime], None] = staticmethod(lambda *told: None)


@step
async def ring(clock: int) -> int:
    return clock


@step(retry=Retry(attempts=20, first=30.0, cap=60.0))
async def wind_up() -> None:
    """Its first attempt fails, so that the process has a wait of another kind beside its timers."""
    if attempt().number == 1:
        raise ConnectionError("the key is not to be found")


async def _wait(clock: int, seconds: float) -> int:
    began = now()
    await asyncio.sleep(seconds)
    Desk.fired(process_id(), began, seconds, now())
    return await ring(clock)


@workflow
async def clocks(seconds: list[float], limit: float) -> list[int]:
    """Wait for some clocks side by side, and for a time limit that ends another wait; beside that, wind them up."""
    waiting = [asyncio.ensure_future(_wait(clock, one)) for clock, one in enumerate(seconds)]
    winding = asyncio.ensure_future(wind_up())
    began = now()
    try:
        async with asyncio.timeout(limit):
            await asyncio.sleep(DAY)
    except TimeoutError:
        Desk.fired(process_id(), began, limit, now())
    rung = [await one for one in waiting]
    await winding
    return rung


async def alarms(cluster: Cluster) -> None:
    """Some processes with some clocks each; every clock is heard, and none of them late without a reason."""
    punctuality = Punctuality(cluster)
    Desk.fired = punctuality.fired  # type: ignore[method-assign]
    await asyncio.sleep(2 * punctuality.bound)  # a worker that has just been started is not at peace
    handles = []
    for _ in range(1 + cluster.draw(3)):
        seconds = [cluster.pick(WAITS) for _ in range(1 + cluster.draw(4))]
        handles.append((await cluster.client.start(clocks, seconds, cluster.pick(WAITS)), len(seconds)))
        await asyncio.sleep(cluster.pick((0.0, 0.3, 5.0)))
    for handle, count in handles:
        rung = await result_of(cluster, handle)
        cluster.require("the_value_is_exact", rung == list(range(count)), f"of {count} clocks were heard {rung}")


def weather(choices: Choices) -> Swarm:
    """Half of all histories are at peace, though calls take their time and hints get lost; the others are not."""
    swarm = Swarm.drawn(choices)
    if choices.draw(2, "peace"):
        return swarm
    kept = {"nodes": swarm.nodes, "deaf": swarm.deaf, "skew": swarm.skew, "options": swarm.options}
    return Swarm(latencies=choices.pick(SCALES[:3], "peace"), **kept)


alarms.weather = weather  # type: ignore[attr-defined]


class Punctuality:
    """The law that a timer fires soon after its time: no later than anything that is due may stand still.

    It looks only where no call takes so long that a lease may lapse by that, nothing has struck those who had the
    process in hand, and at least one worker was at peace for as long as that, with room for everything that is there.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        stillness = Stillness(cluster)
        self.bound, self._applies = stillness.bound, stillness.applies
        self._locks = cluster.server.locks = Locks(cluster.server.locks)

    def fired(self, process: str, began: datetime, seconds: float, now: datetime) -> None:
        """A timer of a process, set for so many seconds, has fired in a turn of that time."""
        cluster = self._cluster
        cluster.probe("a timer has fired")
        late = (now - began).total_seconds() - seconds
        known = cluster.monitor.known.get(id_bytes(process))
        age = cluster.wall.now() / SECOND - now.timestamp() + late
        if known is None or known.process.deaths or known.process.alone_deaths:
            return
        if not self._peaceful(known.process.id, cluster.loop.now - age - self.bound):
            return
        cluster.probe("a timer has fired in peace")
        if late > self.bound:
            text = f"a timer has fired {late:.3f} s after its time, and nothing has struck its workers"
            cluster.loop.fail(cluster.monitor.violation("timers_are_punctual", known.process, text))

    def _peaceful(self, process: bytes, since: float) -> bool:
        cluster = self._cluster
        swarm = cluster.swarm
        if (
            not (self._applies and cluster.wall.steady)
            or swarm.refusals
            or swarm.options.in_flight <= len(cluster.monitor.known)
        ):
            return False
        calm = [node.life for node in cluster.workers if not node.alone and _at_peace(node, since)]
        owners = [self._locks.ever.get(owner) for owner in cluster.monitor.leases.get(process, ())]
        return bool(calm) and all(life in calm for life in owners)


def _at_peace(node: Node, since: float) -> bool:
    """Whether the worker there has lived undisturbed since then."""
    life = node.life
    if life is None or node.engine is None or node.engine.worker is None:
        return False
    return not (life.dead or life.paused or life.struck_at >= since)
