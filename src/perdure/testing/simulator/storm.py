"""The storm: strikes nodes and the clock by chance, and starts killed nodes again, as a supervisor of services does."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from perdure.exhaustion import DESCRIPTORS, THREADS
from perdure.testing.simulator.swarm import BLOWS

if TYPE_CHECKING:
    from perdure.testing.simulator.cluster import Cluster
    from perdure.testing.simulator.life import Life
    from perdure.testing.simulator.node import Node

PAUSES = (0.3, 2.0, 8.0, 40.0)
BLOCKS = (0.05, 0.5, 4.0)
RESTARTS = (0.2, 1.0, 6.0)
JUMPS = (0.5, 5.0, 60.0)
CUTS = (2.0, 8.0, 20.0)
FAULTS_LAST = 4
"""How many times as long as the storm the calls to the store may be slow and fail."""
_KINDS = tuple(BLOWS)


class Storm:
    """Looks around every half virtual second for as long as the swarm says; ``blows`` counts what it did.

    ``killed`` are the incarnations that the weather has killed, here or in a call to the store, or whose session it has
    taken, or that stopped, each with the processes that it held then, without those over their deadlines, whose code
    does not run any more: what code has done to its own OS process is not among them.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._over = False
        self._task: asyncio.Task[None] | None = None
        self._cutting: asyncio.Task[None] | None = None
        self._refusing: asyncio.Task[None] | None = None
        self.blows: Counter[str] = Counter()
        self.killed: dict[bytes, frozenset[bytes]] = {}

    def begin(self) -> None:
        """Begin. Some time after the storm, calls are quick again and meet no faults: no history lasts forever."""
        swarm = self._cluster.swarm
        loop = self._cluster.loop
        loop.call_in(loop.world, FAULTS_LAST * swarm.storm_seconds, self._cluster.server.calm)
        if any(swarm.blows.values()):
            self._task = loop.create_task(self._rage())
        if swarm.cut:
            self._cutting = loop.create_task(self._cut())
        if swarm.refusals:
            self._refusing = loop.create_task(self._refuse())

    def end(self) -> None:
        """End the storm."""
        self._over = True

    def kill(self, node: Node) -> None:
        """Kill a node by the weather: note whom that hits, and start the node again after a while."""
        if node.life is not None and node.alive:
            self.hit(node.life)
        node.kill()
        self.restart(node)

    def hit(self, life: Life) -> None:
        """The weather kills a life or takes its session, or it stops: others may count it as dead."""
        connection = self._cluster.server.connection
        now = 0 if connection is None else connection.one("clock_mark")[0]
        rows = [row for row in self._cluster.rows() if row.deadline is None or row.deadline > now]
        for worker in [worker for worker, owner in self._cluster.server.locks.items() if owner is life]:
            self.killed[worker] = frozenset(row.id for row in rows if row.owner == worker)

    def restart(self, node: Node) -> None:
        """Have a killed node started again after a while, as a supervisor of services does."""
        if not node.alone:
            wait = self._cluster.choices.pick(RESTARTS, "blow")
            self._cluster.loop.call_in(self._cluster.loop.world, wait, node.start)

    async def stop(self, node: Node) -> None:
        """Ask a node to stop, and start it again some time after it has."""
        node.terminate()
        await node.ended()
        self.restart(node)

    async def _rage(self) -> None:
        cluster = self._cluster
        rates = [cluster.swarm.blows.get(blow, 0.0) for blow in BLOWS]
        until = cluster.loop.now + cluster.swarm.storm_seconds
        while cluster.loop.now < until:
            await asyncio.sleep(cluster.swarm.look_seconds)
            for node in list(cluster.nodes):
                if self._over:
                    return
                if node.faulty and node.alive:
                    kind = cluster.choices.weigh(rates, "blow")
                    if kind:
                        self._strike(_KINDS[kind - 1], node)

    async def _cut(self) -> None:
        """Cut nodes off from the store, and only from it: their calls wait until that is over, or fail."""
        cluster, choices = self._cluster, self._cluster.choices
        until = cluster.loop.now + cluster.swarm.storm_seconds
        while cluster.loop.now < until and not self._over:
            await asyncio.sleep(cluster.swarm.look_seconds)
            for node in list(cluster.nodes):
                if node.faulty and node.life is not None and node.alive and choices.chance(cluster.swarm.cut, "cut"):
                    self.blows["cut"] += 1
                    hangs = choices.pick((True, False), "cut")
                    cluster.server.cut(node.life, choices.pick(CUTS, "cut"), hangs=hangs)

    async def _refuse(self) -> None:
        """Have the system refuse nodes their threads or descriptors for a while."""
        cluster, choices = self._cluster, self._cluster.choices
        until = cluster.loop.now + cluster.swarm.storm_seconds
        while cluster.loop.now < until and not self._over:
            await asyncio.sleep(cluster.swarm.look_seconds)
            for node in list(cluster.nodes):
                life = node.life
                if life is None or not (node.faulty and node.alive):
                    continue
                if choices.chance(cluster.swarm.refusals, "shortages"):
                    what = choices.pick((THREADS, DESCRIPTORS), "shortages")
                    self.blows[f"refuse {what}"] += 1
                    life.refused[what] = cluster.loop.now + choices.pick(CUTS, "shortages")
                    life.struck(life.refused[what])
                    cluster.log.note(life.name, f"is refused {what}")

    def _strike(self, blow: str, node: Node) -> None:
        cluster = self._cluster
        self.blows[blow] += 1
        world, call_in = cluster.loop.world, cluster.loop.call_in
        if blow == "kill":
            self.kill(node)
        elif blow in ("pause", "block"):
            node.pause()
            call_in(world, cluster.choices.pick(PAUSES if blow == "pause" else BLOCKS, "blow"), node.resume)
        elif blow == "stop":
            cluster.loop.create_task(self.stop(node))
        else:
            seconds = cluster.choices.pick(JUMPS, "blow") * (1 if blow == "clock forward" else -1)
            cluster.wall.jump(seconds)
            cluster.log.note("world", f"the wall clock jumps by {seconds:g} s")
