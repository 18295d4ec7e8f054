"""A cluster: the nodes of one history, the server they share, and the verbs of a scenario."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from sqlite3 import Connection
from types import ModuleType
from typing import Any, TypeAlias, TypeVar

from perdure.authoring.registry import Registry
from perdure.authoring.step import ATTEMPT
from perdure.authoring.workflow import Workflow
from perdure.engine import Engine
from perdure.kernel.process import FINAL, Process, Status
from perdure.limits import STEP_TIMEOUT_SECONDS
from perdure.runtime.steps.attempt_run import AttemptRun
from perdure.runtime.watchdog import Blocker
from perdure.testing.simulator.choice import Choices
from perdure.testing.simulator.failover import Loss
from perdure.testing.simulator.life import Life
from perdure.testing.simulator.log import Log
from perdure.testing.simulator.loop import SimLoop
from perdure.testing.simulator.machine import WallClock
from perdure.testing.simulator.monitor import Monitor
from perdure.testing.simulator.movers import Movers
from perdure.testing.simulator.node import Node
from perdure.testing.simulator.server import Server
from perdure.testing.simulator.stillness import Stillness
from perdure.testing.simulator.storm import Storm
from perdure.testing.simulator.swarm import Swarm
from perdure.testing.simulator.violation import Violation

T = TypeVar("T")
Hosted: TypeAlias = Workflow[Any, Any] | ModuleType | str
"""A workflow, or a module with all its workflows and queued steps."""

STALL_SECONDS = 120.0
"""After the healing, nothing unfinished may stand still for longer (virtual seconds)."""
LOOK_SECONDS = 0.5
STUCK_SECONDS = 900.0
"""After this time, storm or not, a process that is due and does not move is a violation."""


class Cluster:
    """What a scenario is handed: nodes to strike, a client to speak through, and draws that can be repeated.

    ``client`` is an engine that only starts, asks and tells; its node is never struck and its calls meet no faults.
    ``workers`` are the nodes that work, ``registry`` gives what a node that starts hosts: put another function there to
    deploy other code. ``newer`` are the names of nodes that run a newer Perdure from their next start on, beside the
    schema that :meth:`migrate` has made, ``former`` those that run the first release. ``probes`` counts what
    :meth:`probe` was told.
    """

    def __init__(self, loop: SimLoop, swarm: Swarm, workflows: Sequence[Hosted] | None) -> None:
        self.loop = loop
        self.choices: Choices = loop.choices
        self.swarm = swarm
        self.log = Log(loop)
        self.wall = WallClock(loop)
        self.server = Server(loop, swarm, self.log)
        self.server.kill = self._killed_in_a_call
        self.monitor = Monitor(loop, self.server, self.wall, self.log)
        self.server.monitor = self.monitor
        self.monitor.stillness = Stillness(self)
        self.monitor.movers = Movers(self)
        self.storm = Storm(self)
        self.server.unseat = self.storm.hit
        self.nodes: list[Node] = []
        self.engines: list[Engine] = []
        self.newer: set[str] = set()
        self.former: set[str] = set()
        self.probes: Counter[str] = Counter()
        self.client: Engine
        hosted = Registry.of_program() if workflows is None else Registry(*workflows)
        self.registry: Callable[[], Registry] = lambda: hosted
        self._births = 0

    # -- draws -------------------------------------------------------------------------------------------------------

    def draw(self, options: int) -> int:
        """A number from 0 up to but not including ``options``; 0 is the boring one."""
        return self.choices.draw(options)

    def chance(self, probability: float) -> bool:
        """True with that probability; false is the boring answer."""
        return self.choices.chance(probability)

    def pick(self, options: Sequence[T]) -> T:
        """One of the options; the first is the boring one."""
        return self.choices.pick(options)

    # -- nodes -------------------------------------------------------------------------------------------------------

    @property
    def workers(self) -> list[Node]:
        """The nodes that work, those of suspects that run alone too, in the order of their making."""
        return [node for node in self.nodes if node.work]

    def node(self, name: str, *, work: bool = False, faulty: bool = True) -> Node:
        """Another node; it is not started yet."""
        node = Node(self, name, work=work, faulty=faulty)
        self.nodes.append(node)
        return node

    async def begin(self) -> None:
        """Start the client and as many workers as the swarm says; the storm begins. The simulator calls this."""
        self.loop.create_task(self._guard())
        quiet = self.node("client", faulty=False)
        quiet.start()
        self.client = await quiet.opened()
        for number in range(self.swarm.nodes):
            self.node(f"worker-{number + 1}", work=True).start()
        self.storm.begin()

    def bear(self, parent: Node) -> Node:
        """The node of a quarantine worker that ``parent`` asks for, started at once."""
        node = Node(self, f"{parent.name}-alone", work=True, faulty=True, alone=True)
        self.nodes = [one for one in self.nodes if one.alive or not one.alone] + [node]
        node.start()
        return node

    def born(self, name: str) -> Life:
        """The life of a new OS process; the simulator calls this."""
        self._births += 1
        skew = self.swarm.skew * self.choices.pick((0, -1, 1), "skew") if self.swarm.skew else 0.0
        life = self.loop.born(f"{name}#{self._births}", self._births, 1.0 + skew, 1000.0 * self._births)
        life.struck(self.loop.now)
        return life

    def _killed_in_a_call(self, life: Life) -> None:
        for node in self._at(life):
            self.storm.kill(node)

    def _at(self, life: Life) -> list[Node]:
        return [node for node in self.nodes if node.life is life]

    def fail_over(self, lost: int) -> list[Loss]:
        """Fail over to a standby that lacks the last ``lost`` commits; the answer is what that set back, and who knew.

        The swarm says how far the standby may lag: ``Swarm(lag=…)``. From then on there is a law: a worker that saw the
        old server claims no process that another worker knows to be set back, before that other worker has held it.
        """
        self.server.fail_over(lost)
        return self.monitor.fell_back(self.server.line)

    def restore(self, copy: Connection) -> list[Loss]:
        """Put a backup (``server.back_up()``) back under running nodes; the answer is what that set back, and who knew.

        The swarm must allow it: ``Swarm(backups=True)``. The law is that of a fail-over.
        """
        self.server.restore(copy)
        return self.monitor.fell_back(self.server.restored)

    def damage(self, process: bytes, statement: str) -> bool:
        """Alter what is stored of a process by hand (``:id`` in the statement is its id), whatever the laws say.

        The laws do not look at its history from then on; nevertheless it must hurt only itself. The answer is whether
        the statement has answered a row (``RETURNING``).
        """
        self.log.note("world", f"{self.log.called(self.monitor.known[process].process)} is damaged: {statement}")
        found = self.server.edit(statement, {"id": process})
        self.monitor.damaged(process)
        return bool(found)

    def migrate(self) -> None:
        """Migrate the database as a newer Perdure does: its number rises; older nodes must find that out themselves."""
        number = self.server.edit("PRAGMA user_version")[0] + 1
        self.server.edit(f"PRAGMA user_version = {number}")
        self.log.note("world", f"the schema has number {number} now")

    async def die(self) -> None:
        """Called by a step: the OS process in which it runs is killed here and now."""
        for node in self._at(self.loop.current()):
            node.kill()
            self.storm.restart(node)
        await self.loop.create_future()

    async def hang(self) -> None:
        """Called by a step: it blocks the event loop in which it runs, until that OS process is ended."""
        attempt_run = getattr(ATTEMPT.get(None), "__self__", None)
        life = self.loop.current()
        for node in self._at(life):
            if isinstance(attempt_run, AttemptRun):
                ask = attempt_run.ask
                process, place = attempt_run.instance.process.id, f"{ask.name}:{ask.place}"
                node.hang(Blocker("simulated", process, place, ask.step.timeout, attempt_run.deadline))
        await self.loop.create_future()

    # -- the end -----------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """End all faults and blows; resume the nodes that are paused, and start those that are dead."""
        self.storm.end()
        self.server.calm()
        for node in self.nodes:
            node.resume()
            if node.life is not None:
                node.life.refused.clear()
            if not node.alone:
                node.start()
        self.log.note("world", "the storm is over")

    async def settled(self, done: Callable[[Process], bool] | None = None, *, stall: float = STALL_SECONDS) -> None:
        """Wait until every process has ended, or waits for a person (or is ``done``, as you say).

        Raises Violation if for ``stall`` virtual seconds nothing moves although something is unfinished: a process
        that sleeps until a time to come counts as moving.
        """
        rests = done or _rests
        since = self.loop.now
        while True:
            open = [process for process in self.monitor.rows() if not rests(process)]
            if not open:
                return
            now = self.wall.now()
            if any(_asleep(process, now) for process in open):
                since = self.loop.now
            if self.loop.now - max(since, self.monitor.moved_at) > stall:
                told = ", ".join(f"{self.log.called(one)} ({one.status}, awaits {one.awaiting})" for one in open[:5])
                raise Violation(
                    "liveness", f"nothing has moved for {stall:g} s, and {len(open)} are unfinished: {told}"
                )
            await asyncio.sleep(LOOK_SECONDS)

    async def _guard(self) -> None:
        """End a history in which something due stands still for so long that its scenario might wait for ever."""
        while True:
            await asyncio.sleep(STUCK_SECONDS / 4)
            still = self.loop.now - self.monitor.moved_at
            now = self.wall.now()
            stuck = [one for one in self.monitor.rows() if _due(one, now) and still > _patience(one)]
            if stuck and not self.loop.failure:
                told = ", ".join(f"{self.log.called(one)} (awaits {one.awaiting})" for one in stuck[:5])
                self.loop.fail(
                    Violation("liveness", f"nothing has moved for {still:g} s, and {len(stuck)} are due: {told}")
                )

    def probe(self, name: str, times: int = 1) -> None:
        """Count that something worth testing has happened in this history."""
        self.probes[name] += times

    def note(self, text: str) -> None:
        """Write a line into the log."""
        self.log.note("scenario", text)

    def require(self, law: str, holds: object, text: str) -> None:
        """Raise Violation with the law's name and this text unless it holds."""
        if not holds:
            raise Violation(law, text)

    def rows(self) -> list[Process]:
        """Every process as it is in the database now, in the order of their ids."""
        return self.monitor.rows()


def _rests(process: Process) -> bool:
    return process.status in FINAL or process.status in (Status.BROKEN, Status.HELD)


def _due(process: Process, now: int) -> bool:
    """Whether a worker ought to move it: a worker owns it, or it is due."""
    if process.status is not Status.RUNNING or process.reminder:
        return False
    return process.owner is not None or (process.due_at is not None and process.due_at <= now)


def _patience(process: Process) -> float:
    """How long it may stand still: a step under way may take its hour."""
    return STUCK_SECONDS if process.owner is None else STUCK_SECONDS + 2 * STEP_TIMEOUT_SECONDS


def _asleep(process: Process, now: int) -> bool:
    """Whether no worker owns it, and it waits for a time to come."""
    return process.owner is None and not process.reminder and process.due_at is not None and process.due_at > now
