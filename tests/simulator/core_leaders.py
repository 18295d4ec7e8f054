"""Programs that want to lead, in every weather: what is done in one term is over before the next term begins."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import ClassVar

from perdure import Engine, Retry, step, workflow
from perdure.client.leaders import LeaderView
from perdure.errors import IllegalMove
from perdure.testing.simulator import Cluster
from perdure.testing.simulator.choice import Choices
from perdure.testing.simulator.swarm import Swarm
from perdure.testing.simulator.violation import Violation
from tests.simulator.misfortune import result_of

LEASE = 3.0
BACK_SECONDS = 400.0
"""So long after the storm everything has ended."""


class Crown:
    """What the world knows of those who have led."""

    cluster: ClassVar[Cluster]
    term: ClassVar[int] = 0
    led: ClassVar[int] = 0
    released: ClassVar[dict[int, float]] = {}

    @classmethod
    def opens(cls, cluster: Cluster) -> None:
        """A new history."""
        cls.cluster, cls.term, cls.led, cls.released = cluster, 0, 0, {}

    @classmethod
    def engine(cls) -> Engine:
        """The engine of the node whose code runs now."""
        life = cls.cluster.loop.current()
        [engine] = [node.engine or node.built for node in cls.cluster.nodes if node.life is life]
        assert engine is not None
        return engine

    @classmethod
    def worked(cls, term: int) -> None:
        """A piece of work of the leader of that term: no later leader has worked before it."""
        cls.led += 1
        cls.cluster.probe("a piece of work of a leader")
        if term < cls.term and cls.cluster.wall.steady:
            text = f"the leader of term {term} works although the one of term {cls.term} has begun"
            cls.cluster.loop.fail(Violation("terms_follow", text))
        seconds = cls.cluster.loop.now - cls.released.get(term, cls.cluster.loop.now)
        if seconds > LEASE and cls.cluster.wall.steady:
            text = f"the leader of term {term} works {seconds:.1f} s after a person has released it"
            cls.cluster.loop.fail(Violation("terms_follow", text))
        cls.term = max(cls.term, term)


@step(retry=Retry(attempts=500, first=0.2, cap=2.0), timeout=60)
async def reign(times: int) -> int:
    async with Crown.engine().leader("crown", lease=LEASE) as lead:
        for _ in range(times):
            lead.check()
            Crown.worked(lead.term)
            await asyncio.sleep(0.4)
    return times


@workflow
async def reigning(number: int, times: int) -> int:
    return await reign(times) + await reign(number)


async def reigns(cluster: Cluster) -> None:
    """Some lead one after the other; perhaps a person asks one of them to stop."""
    Crown.opens(cluster)
    times, count = cluster.pick((3, 1, 12)), cluster.pick((4, 8))
    handles = [await cluster.client.start(reigning, number, times) for number in range(count)]
    for _ in range(cluster.pick((0, 1, 3))):
        view = await _seen(cluster, cluster.pick((1, 4, 0)))
        if view.leads:
            try:
                view = await cluster.client.leaders.release("crown", who="anna", why="a new version")
                Crown.released[view.term] = cluster.loop.now
            except IllegalMove:  # it has ended meanwhile
                cluster.probe("a leader that has ended before it is released")
    cluster.heal()
    try:
        async with asyncio.timeout(BACK_SECONDS):
            for number, handle in enumerate(handles):
                led = await result_of(cluster, handle)
                cluster.require("the_value_is_exact", led == times + number, f"{number} has led {led} times")
    except TimeoutError:
        cluster.require("everything_ends", False, f"nobody leads, {BACK_SECONDS:g} s after the storm")
    view = await cluster.client.leaders.state("crown")
    cluster.require("terms_follow", view.term >= Crown.term, "a term was given twice")


async def _seen(cluster: Cluster, seconds: int) -> LeaderView:
    """What a person sees who looks after so many seconds, or who waits (0) for the next leader."""
    await asyncio.sleep(seconds)
    view = before = await cluster.client.leaders.state("crown")
    for _ in range(0 if seconds else 200):
        if view.term != before.term:
            break
        await asyncio.sleep(0.05)
        view = await cluster.client.leaders.state("crown")
    return view


def weather(choices: Choices) -> Swarm:
    """In half of the histories it is often the lease whose answer is lost."""
    drawn = Swarm.drawn(choices)
    return replace(drawn, door=choices.pick((drawn.door, ("records", "failed after", 0.3)), "weather"))


reigns.weather = weather  # type: ignore[attr-defined]
