"""A node: a place where an OS process of ours runs, is killed, stopped, and started again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.engine import Engine
from perdure.errors import StoreError
from perdure.kernel.worker import Beat
from perdure.quarantined import run_alone
from perdure.runtime.watchdog import Blocker, Watchdog
from perdure.testing.simulator.failover import LinealStore, RestoredStore
from perdure.testing.simulator.former import FormerStore
from perdure.testing.simulator.life import Life
from perdure.testing.simulator.machine import SimMachine
from perdure.testing.simulator.newer import NewerStore
from perdure.testing.simulator.store import SimStore

if TYPE_CHECKING:
    from perdure.testing.simulator.cluster import Cluster

T = TypeVar("T")

AGAIN_SECONDS = 1.0
"""After so long a node that could not open its store tries again."""


class NodeKilled(Exception):
    """What a call on a node raises in the world when the node is killed in the middle of it."""


class Node:
    """One place in a cluster. ``life`` is the OS process that runs there now, ``engine`` its engine once it is open.

    ``work`` says that it is a worker and not only a client, ``faulty`` that its calls to the store meet faults and that
    the storm may strike it.
    """

    def __init__(self, cluster: Cluster, name: str, *, work: bool, faulty: bool, alone: bool = False) -> None:
        self.cluster = cluster
        self.name = name
        self.work = work
        self.faulty = faulty
        self.alone = alone
        self.life: Life | None = None
        self.engine: Engine | None = None
        self.built: Engine | None = None
        self.kills = 0
        self._ended: asyncio.Future[int] | None = None
        self._opened: asyncio.Future[Engine] = cluster.loop.create_future()
        self._calls: list[asyncio.Future[Any]] = []

    @property
    def alive(self) -> bool:
        """Whether an OS process runs here, paused or not."""
        return self.life is not None and not self.life.dead

    # -- its life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start an OS process here, unless one runs: a new incarnation with nothing in its memory."""
        if self.alive:
            return
        cluster = self.cluster
        life = self.life = cluster.born(self.name)
        self._ended = cluster.loop.create_future()
        cluster.log.note(life.name, "starts")
        cluster.loop.run_in(life, self._live(life))

    async def _live(self, life: Life) -> None:
        code = 0
        try:
            if self.alone:
                await run_alone(lambda: self._build(life))
            else:
                engine = await self._open(life)
                await engine.run()
                await engine.close()
        except StoreError as error:
            self.cluster.log.note(life.name, f"ends with {type(error).__name__}: {error}")
            code = 1
        life.stopped = not life.dead
        self.cluster.storm.hit(life)  # only an outage keeps who stops from handing back what it holds
        self._end(life, code, "has stopped")

    async def _open(self, life: Life) -> Engine:
        while True:
            engine = self._build(life)
            try:
                await engine.__aenter__()
            except StoreError:
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            self.engine = engine
            life.struck(self.cluster.loop.now)  # until now it has taken nothing
            if not self._opened.done():
                self._opened.set_result(engine)
            return engine

    def _build(self, life: Life) -> Engine:
        cluster = self.cluster
        machine = SimMachine(cluster.loop, life, cluster.wall, self._spawn, partial(self._leave, life))
        if cluster.swarm.lag or cluster.swarm.backups:
            lineal = LinealStore if cluster.swarm.lag else RestoredStore
            store: SimStore = lineal(cluster.server, life, machine, faulty=self.faulty, holds=self.work)
        else:
            name = self.name.removesuffix("-alone")
            kind = NewerStore if name in cluster.newer else FormerStore if name in cluster.former else SimStore
            store = kind(cluster.server, life, machine, faulty=self.faulty)
        engine = Engine(
            store.url,
            work=self.work,
            registry=cluster.registry(),
            machine=machine,
            store=store,
            options=replace(cluster.swarm.options, exit_when_hung=True),
            alone=self.alone,
        )
        cluster.engines.append(engine)
        self.built = engine
        return engine

    async def opened(self) -> Engine:
        """The engine here, as soon as it is open."""
        return await asyncio.shield(self._opened)

    def kill(self) -> None:
        """SIGKILL: what runs here is gone, and nothing of it says goodbye."""
        life = self.life
        if life is None or life.dead:
            return
        self.kills += 1
        self._end(life, -signal.SIGKILL, "is killed")

    def _end(self, life: Life, code: int, how: str) -> None:
        if life.dead:
            return
        self.cluster.log.note(life.name, how)
        self.cluster.loop.kill(life)
        self.engine = None
        if self._opened.done():
            self._opened = self.cluster.loop.create_future()
        calls, self._calls = self._calls, []
        for call in calls:
            if not call.done():
                call.set_exception(NodeKilled(f"{life.name} {how} before the call had ended"))
                call.exception()  # retrieved here, since perhaps nobody waits for this call
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(code)

    def _leave(self, life: Life, code: int) -> None:
        self._end(life, code, f"ends itself with exit code {code}")
        self.cluster.storm.restart(self)

    def hang(self, blocker: Blocker) -> None:
        """Code blocks the event loop here for ever: only the watchdog still runs, in the world."""
        life, engine = self.life, self.built
        if life is None or life.dead or engine is None or engine.worker is None:
            return
        life.paused = life.hung = True
        life.blows += 1
        self.cluster.log.note(life.name, f"is hung by step {blocker.step}")
        watchdog = engine.worker.watchdog
        watchdog.blocker = lambda: blocker
        watchdog.witness = SimWitness(self.cluster, life)  # type: ignore[assignment]
        self._watch(life, watchdog)

    def _watch(self, life: Life, watchdog: Watchdog) -> None:
        if not life.dead:
            watchdog.look()
            self.cluster.loop.call_in(self.cluster.loop.world, watchdog.pause, self._watch, life, watchdog)

    def pause(self) -> None:
        """SIGSTOP, or code that blocks the event loop: nothing here goes on until :meth:`resume`."""
        if self.life is not None and self.alive and not self.life.paused:
            self.life.paused = True
            self.life.blows += 1
            self.cluster.log.note(self.life.name, "is paused")

    def resume(self) -> None:
        """SIGCONT: what has piled up goes on."""
        if self.life is not None and self.alive and self.life.paused and not self.life.hung:
            self.life.paused = False
            self.life.struck(self.cluster.loop.now)
            self.cluster.log.note(self.life.name, "goes on")

    def terminate(self) -> None:
        """SIGTERM: ask what runs here to stop gracefully."""
        if self.life is None or not self.alive:
            return
        self.cluster.log.note(self.life.name, "is asked to stop")
        self.life.blows += 1
        self.life.struck(self.cluster.loop.now)
        stop = self.life.signals.get(signal.SIGTERM)
        if stop is None and self.engine is not None:
            stop = self.engine.stop_soon
        if stop is not None:
            self.cluster.loop.call_in(self.life, 0.0, stop)

    async def ended(self) -> int:
        """Wait for the end of what runs here; negative is the signal that ended it."""
        if self._ended is None or not self.alive:
            return 0
        return await asyncio.shield(self._ended)

    # -- what runs in it ---------------------------------------------------------------------------------------------

    async def call(self, function: Callable[[Engine], Awaitable[T]]) -> T:
        """Run code here with the engine, as part of this OS process: it dies with it. Raises NodeKilled then."""
        engine = await self.opened()
        if self.engine is not engine or self.life is None:
            raise NodeKilled(f"{self.name} was killed before the call had begun")
        answer: asyncio.Future[T] = self.cluster.loop.create_future()
        self._calls.append(answer)
        self.cluster.loop.run_in(self.life, _called(function, engine, answer))
        try:
            return await answer
        finally:
            if answer in self._calls:
                self._calls.remove(answer)

    async def _spawn(self) -> SimChild:
        """The quarantine worker that the engine here asks for: another node."""
        return SimChild(self.cluster.bear(self))


async def _called(function: Callable[[Engine], Awaitable[T]], engine: Engine, answer: asyncio.Future[T]) -> None:
    try:
        result = await function(engine)
    except Exception as error:
        if not answer.done():
            answer.set_exception(error)
    else:
        if not answer.done():
            answer.set_result(result)


class SimWitness:
    """What a watchdog tells the store while its life is blocked goes over a connection of the world's own."""

    def __init__(self, cluster: Cluster, life: Life) -> None:
        self._cluster = cluster
        self._life = life

    def tell(self, beat: Beat) -> None:
        """Have the beat written; if that fails, the watchdog tells it again at its next look."""
        self._cluster.loop.run_in(self._cluster.loop.world, self._told(beat))

    def wait(self, seconds: float) -> None:
        """Nothing: the watchdog has looked before."""

    async def _told(self, beat: Beat) -> None:
        cluster, life = self._cluster, self._life
        machine = SimMachine(cluster.loop, life, cluster.wall)
        store = SimStore(cluster.server, life, machine)
        try:
            await store.open(migrate=False)
            await store.beat(beat)
        except StoreError as error:
            cluster.log.note(life.name, f"could not tell what hangs it: {error}")
        finally:
            await store.close()


class SimChild:
    """A child OS process that is a node of the same history."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.returncode: int | None = None

    def terminate(self) -> None:
        """Ask it to stop."""
        self.node.terminate()

    def kill(self) -> None:
        """End it at once."""
        self.node.kill()

    async def wait(self) -> int:
        """Its return code, when it has ended."""
        if self.returncode is None:
            self.returncode = await self.node.ended()
        return self.returncode
