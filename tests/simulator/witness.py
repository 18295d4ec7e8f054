"""A witness: looks on whenever a step begins, and compares what is stored at that moment with what the program says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import json

from perdure.clock import SECOND
from perdure.kernel.child import is_task
from perdure.kernel.event import Event, EventType
from perdure.kernel.names import id_bytes, id_text
from perdure.kernel.process import Process
from perdure.runtime.scheduler import Scheduler
from perdure.testing.simulator import Cluster, Violation
from perdure.testing.simulator.life import Life
from perdure.testing.simulator.store import SimStore
from tests.simulator.evidence import program_of
from tests.simulator.hearing import Hearing
from tests.simulator.ledger import Effect
from tests.simulator.program import Do, Kin, Line, Node, inside

MOMENT_SECONDS = 0.002
"""Times are rounded to less than this."""
ACTS = frozenset({"began", "done", "undoing", "undone"})
"""Effects of who acts; who was told to stop may go on for a moment to clean up."""
BY_PEOPLE = frozenset({EventType.SET_BY_HAND, EventType.SKIPPED})


class Locks(dict[bytes, Life]):
    """The locks of incarnations; whose they were is remembered in ``ever``."""

    def __init__(self, locks: Mapping[bytes, Life]) -> None:
        super().__init__(locks)
        self.ever = dict(locks)

    def __setitem__(self, worker: bytes, life: Life) -> None:
        super().__setitem__(worker, life)
        self.ever[worker] = life


class Witness:
    """Ends a history in which a step begins before the reason for it is stored, or goes on over the end of a lease."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.locks = cluster.server.locks = Locks(cluster.server.locks)
        self.cluster.monitor.noted = self._noted
        self.hearing = Hearing(cluster)
        self._by_people: set[bytes] = set()  # in whichever run: a restart keeps such a result, and not what it was
        self._before: dict[bytes, dict[str, tuple[str, ...]]] = {}

    def saw(self, effect: Effect) -> None:
        """An effect has just been noted."""
        if self.cluster.wall.steady:  # else nobody can know when a lease is over
            self._in_time(effect)
        self.hearing.saw(effect)
        if effect.kind != "began":
            return
        known = self.cluster.monitor.known.get(id_bytes(effect.process))
        if known is None:
            self._fail(f"{effect.label} begins for the process {effect.process}, which is not stored")
            return
        row = known.process
        life = self.cluster.loop.current()
        if row.owner is None or self.cluster.server.locks.get(row.owner) is not life:
            return  # somebody else has it now, and we shall hear of it
        scheduler = self._holder(life, row.id)
        if scheduler is not None and scheduler.instances[row.id].process.token != row.token:
            return  # it was taken from this life, which has claimed it again and not heard of it yet
        if is_task(row.kind) or row.id in self._by_people:
            return
        before = self._before.get(row.id)
        if before is None:
            before = self._before[row.id] = dict(_before(program_of(row).body))
        recorded = {event.payload for event in known.events if event.type is EventType.STEP_COMPLETED}
        for label in before.get(effect.label, ()):
            if json.encode(label) not in recorded:
                self._fail(f"{effect.label} begins, and no result of {label} before it is stored")

    def _in_time(self, effect: Effect) -> None:
        """Nobody acts on a lease that is over, though stopped for a while, or takes it to be longer (rule 15)."""
        life, id = self.cluster.loop.current(), id_bytes(effect.process)
        leases = self.cluster.monitor.leases.get(id, {})
        mine = [end for owner, end in leases.items() if self.locks.ever.get(owner) is life]
        if not mine:
            if effect.kind in ACTS:
                self._fail(f"{effect.label}: {effect.kind} in a worker that has never had its process", "one_owner")
            return
        left = (max(mine) - self.cluster.wall.now()) / SECOND
        swarm = self.cluster.swarm
        apart = swarm.skew * swarm.options.lease_seconds + MOMENT_SECONDS
        if effect.kind in ACTS and left < (-apart if life.blows else 0):
            self._fail(f"{effect.label}: {effect.kind} {-left:.3f} s after the lease of its process", "one_owner")
        believed = self._believed(life, id)
        if believed > left + apart:
            text = f"{effect.label}: its worker believes in a lease of {believed:.3f} s more, and has {left:.3f} s"
            self._fail(text, "one_owner")

    def _believed(self, life: Life, process: bytes) -> float:
        """For how long a life believes that its lease of a process lasts, in seconds."""
        scheduler = self._holder(life, process)
        if scheduler is None:
            return float("-inf")
        return (scheduler.instances[process].lease_end - scheduler.machine.monotonic()) / life.rate

    def _holder(self, life: Life, process: bytes) -> Scheduler | None:
        """The scheduler of a life that has a process in hand, also while its engine closes and waits for steps."""
        for engine in self.cluster.engines:
            worker = engine.worker or engine._draining
            scheduler = None if worker is None else worker.scheduler
            ours = isinstance(engine.store, SimStore) and engine.store.life is life
            if ours and scheduler is not None and process in scheduler.instances:
                return scheduler
        return None

    def _noted(self, process: Process, event: Event) -> None:
        """An event has been stored."""
        if event.type in BY_PEOPLE:
            self._by_people.add(process.id)
        self._died(process, event)

    def _died(self, process: Process, event: Event) -> None:
        """Nobody is taken for dead whose lock was never free, or who hung: what says so has evidence (rules 12, 13)."""
        if event.type is EventType.REVIVED and b'"died":true' in (event.payload or b""):
            worker = str(json.decode(event.payload or b"{}")["worker"]).rpartition(" ")[2]
            life = self.locks.ever.get(id_bytes(worker))
            if life is not None and life.hung and b'"hung":' in (event.payload or b""):
                return  # its watchdog has said so, and is about to end it
            if life is not None and not life.dead and not self.cluster.server.faults["session lost"]:
                self._fail(
                    f"event {event.number} of {id_text(process.id)}: {life.name} has not died", "deaths_have_evidence"
                )

    def _fail(self, text: str, law: str = "one_transaction") -> None:
        self.cluster.loop.fail(Violation(law, text))


def _before(node: Node, prior: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """For every step of a process itself: the steps whose results it has to wait for; queued ones are left out."""
    match node:
        case Do(label=label):
            yield label, prior
        case Kin():
            return
        case Line(parts):
            for part in parts:
                yield from _before(part, prior)
                if isinstance(part, Do) and not part.queue:
                    prior += (part.label,)
        case _:
            for part in inside(node):
                yield from _before(part, prior)
