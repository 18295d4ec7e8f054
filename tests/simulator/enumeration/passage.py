"""A passage: one plot played once, with or without blows, and judged by its exact outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from perdure.authoring.registry import Registry
from perdure.errors import StoreUnavailable
from perdure.testing.simulator import Cluster, History, NodeKilled, Swarm, simulate
from tests.simulator.enumeration.judgement import Account, judged
from tests.simulator.enumeration.plot import Plot
from tests.simulator.enumeration.point import Call, Fate, Point
from tests.simulator.ledger import Desk, Ledger

LOOK_SECONDS = 0.1
AGAIN_SECONDS = 0.5


@dataclass
class Passage:
    """What came of it: the history, the calls to the store that were made, and when all was at rest (virtual)."""

    plot: Plot
    points: tuple[Point, ...]
    history: History
    calls: Sequence[Call]
    seconds: float

    def after(self) -> list[Call]:
        """The calls that were made after the last blow: those of a first blow's history are where a second may fall."""
        struck = {(point.node, point.call) for point in self.points}
        last = max((at for at, call in enumerate(self.calls) if (call.node, call.number) in struck), default=-1)
        return list(self.calls[last + 1 :])


def played(plot: Plot, points: Sequence[Point] = ()) -> Passage:
    """Play a plot with these blows, in calm weather and with nothing drawn: the same each time."""
    fate = Fate(points)
    stage = _Stage(plot, fate, max(1, len(points)))
    swarm = Swarm(nodes=len(plot.workers))
    history = simulate(stage.scenario, swarm=swarm, choices={}, workflows=())
    return Passage(plot, tuple(points), history, fate.calls, stage.rested_at)


class _Stage:
    """Plays one plot on a cluster. The client's program is begun anew as often as its node dies or loses the store."""

    def __init__(self, plot: Plot, fate: Fate, patience: int) -> None:
        self.plot = plot
        self.fate = fate
        self.seconds = plot.seconds * patience
        self.ledger = Ledger()
        self.rested_at = 0.0
        self.hosted = [hosts() for hosts in plot.workers]

    async def scenario(self, cluster: Cluster) -> None:
        cluster.server.fate = self.fate
        cluster.registry = lambda: self._registry(cluster)
        Desk.ledger, Desk.die = self.ledger, cluster.die
        around = None if self.plot.around is None else cluster.loop.create_task(self.plot.around(cluster))
        answer: object = None
        try:
            async with asyncio.timeout(self.seconds):
                answer = await self._insist(cluster)
                while any(not row.final for row in cluster.rows()):
                    await asyncio.sleep(LOOK_SECONDS)
                if around is not None:
                    await around
        except TimeoutError:
            rows = ", ".join(f"{row.kind} is {row.status} and awaits {row.awaiting}" for row in cluster.rows())
            cluster.require("liveness", False, f"after {self.seconds:g} s the client has not its answer: {rows}")
        self.fate.over = True
        self.rested_at = cluster.loop.now
        cluster.require("the_client_is_told", answer == self.plot.answer, f"{answer!r} is not {self.plot.answer!r}")
        deeds = [effect for effect in self.ledger.effects if effect.kind == "done"]
        for text in judged(self.plot, await _accounts(cluster), deeds):
            cluster.require("exact_outcome", False, text)

    def _registry(self, cluster: Cluster) -> Registry:
        name = cluster.loop.current().name
        number = name.removeprefix("worker-").partition("#")[0].removesuffix("-alone")
        return self.hosted[int(number) - 1] if number.isdigit() else Registry()

    async def _insist(self, cluster: Cluster) -> object:
        node = cluster.node("caller")
        node.start()
        while True:
            try:
                return await node.call(self.plot.client)
            except NodeKilled:
                pass  # it is started again as whoever runs it does
            except StoreUnavailable:
                await asyncio.sleep(AGAIN_SECONDS)


async def _accounts(cluster: Cluster) -> list[Account]:
    """Each process with the events of all its runs, by kind and in the order of their making."""
    history = cluster.client.store.history
    rows = sorted(cluster.rows(), key=lambda row: (row.kind, row.created_at))
    return [Account(row, [await history(row.id, run) for run in range(1, row.run + 1)]) for row in rows]
