"""A history: one run of a scenario on a simulated cluster, from one seed."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from perdure import limits
from perdure.kernel.names import id_text
from perdure.testing.simulator import database
from perdure.testing.simulator.choice import Choices, Record
from perdure.testing.simulator.cluster import Cluster, Hosted
from perdure.testing.simulator.escape import closed
from perdure.testing.simulator.life import Life
from perdure.testing.simulator.log import Log
from perdure.testing.simulator.loop import SimLoop
from perdure.testing.simulator.swarm import Swarm
from perdure.testing.simulator.violation import Violation
from perdure.turns.eviction import close
from perdure.turns.sandbox import overrides

Scenario: TypeAlias = Callable[[Cluster], Awaitable[object]]
"""What happens in a history: an async function that is handed the cluster."""

SMALL_LIMITS: Mapping[str, tuple[int, int, tuple[int, ...]]] = {
    "LONG_HISTORY_EVENTS": (3, 2, (1,)),  # a process lingers after a message
    "REPLAY_EVENTS": (3, 5, (0, 1)),  # the replay of a history is done in portions
    "OUTBOX_RECORDS": (1, 3, (0,)),  # one commit takes one child, signal, or wish to end a child
    "HEARD_BYTES": (1, 4, (1,)),  # one read, and one claim, brings one unheard message
    "FIRST_RECORDS": (1, 7, (1, 2)),  # the first read of letters of a name brings one
    "MAILBOX_BYTES": (1, 7, (2, 3)),  # one letter that nobody awaits is kept in memory, all others wait in the store
    "BATCH_RECORDS": (2, 11, (1, 4, 7)),  # two commits go together, and two letters of a name are read at once
    "CLAIM_ROWS": (2, 13, (1, 5, 9)),  # two processes are claimed at once
}
"""Limits that small processes reach in some histories only: the limit, and the remainders of the seed by a number."""

log = logging.getLogger("perdure")
log.addHandler(logging.NullHandler())  # nobody reads what dead lives still log when they are collected


@dataclass
class History:
    """What came of it: ``violation`` is the first broken law, or None.

    ``choices`` repeats it: the draws in their order, by what they were for. ``seconds`` is the virtual time that
    has passed, ``calls`` counts callbacks, ``transactions`` those that were checked, ``faults`` what happened to the
    nodes and their calls, ``probes`` what the scenario counted, ``events`` the facts written by type.
    """

    seed: int
    scenario: str
    violation: Violation | None
    choices: dict[str, list[int]]
    log: Log
    swarm: Swarm
    seconds: float = 0.0
    calls: int = 0
    transactions: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    probes: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)

    @property
    def decisions(self) -> int:
        """How many of its choices are not the boring ones."""
        return sum(choice != 0 for choices in self.choices.values() for choice in choices)

    def digest(self) -> str:
        """A short name of the whole log: equal if and only if everything went the same way."""
        return self.log.digest()

    def timeline(self) -> str:
        """What happened, for people: who did what when, the faults and blows, and how it ended."""
        head = f"seed {self.seed}, {self.decisions} decisions, {self.seconds:.1f} virtual seconds"
        end = "no law was broken" if self.violation is None else str(self.violation)
        return "\n".join([head, *self.log.lines(), end])

    def check(self) -> History:
        """Itself; raises the violation if there is one, with the command that repeats and shrinks it."""
        if self.violation is not None:
            self.violation.add_note(f"repeat: python -m perdure.testing.simulator {self.scenario} SEED={self.seed}")
            raise self.violation
        return self


def simulate(
    scenario: Scenario,
    seed: int = 0,
    *,
    workflows: Iterable[Hosted] | None = None,
    swarm: Swarm | None = None,
    choices: Record | None = None,
    most: int | None = None,
) -> History:
    """Run one history: begin, the scenario, heal, wait until all is settled, check the end.

    ``workflows``, or the modules given there, are hosted by every worker (default: all that this program has defined;
    queued steps are served by their module). ``swarm`` is the weather (default: drawn). ``choices`` repeats a recorded
    history instead of drawing from the seed; after ``most`` calls it is cut short.
    """
    made = Choices(seed, choices)
    loop = SimLoop(made, most)
    weather = swarm or getattr(scenario, "weather", Swarm.drawn)(made)
    cluster = Cluster(loop, weather, None if workflows is None else tuple(workflows))
    violation: Violation | None = None
    overrides.build()
    with _uncollected():
        try:
            with closed(loop), _listening(loop, cluster), _small_limits(seed):
                loop.run(_whole(cluster, scenario))
        except Violation as broken:
            violation = broken
        except Exception as error:
            violation = Violation("scenario", f"{type(error).__name__}: {error}")
            violation.__cause__ = error
        finally:
            _bury(loop, cluster)
    if violation is None and loop.troubles:  # most are told only when what had them is freed
        violation = _unexpected(loop.troubles[0]["message"], loop.troubles[0]["exception"])
    return History(
        seed,
        f"{getattr(scenario, '__module__', '')}:{getattr(scenario, '__qualname__', scenario)}",
        violation,
        dict(made.made),
        cluster.log,
        weather,
        seconds=loop.now,
        calls=loop.calls,
        transactions=cluster.monitor.transactions,
        faults=cluster.server.faults + cluster.storm.blows,
        probes=cluster.probes,
        events=cluster.monitor.events,
    )


async def _whole(cluster: Cluster, scenario: Scenario) -> None:
    await cluster.begin()
    await scenario(cluster)
    cluster.heal()
    await cluster.settled()
    cluster.monitor.end()


def _unexpected(text: str, error: BaseException | None) -> Violation:
    violation = Violation("nothing_unexpected", text if error is None else f"{text}: {type(error).__name__}: {error}")
    violation.__cause__ = error
    return violation


UNWRITTEN = ("its commit was not written", "could not be parked", "could not be ended", "could not begin")
"""What is logged of a commit that the store has not taken."""


class _Ear(logging.Handler):
    """Reads what the engine logs: an error that must not happen and is only logged ends the history."""

    def __init__(self, loop: SimLoop, cluster: Cluster) -> None:
        super().__init__()
        self._loop = loop
        self._cluster = cluster

    def emit(self, record: logging.LogRecord) -> None:
        text, life = record.getMessage(), self._loop.current()
        self._cluster.log.note(life.name, f"logs {record.levelname.lower()}: {text}")
        if "please report" in text:
            self._loop.fail(_unexpected(text, record.exc_info and record.exc_info[1]))
        elif any(words in text for words in UNWRITTEN) and not (self._closes(life) or self._damaged(text)):
            self._loop.fail(_unexpected(text, None))

    def _damaged(self, text: str) -> bool:
        """Whether a text is of a process that was altered by hand: the store may refuse what is written of it."""
        return any(id_text(id) in text for id in self._cluster.monitor.strange)

    def _closes(self, life: Life) -> bool:
        """Whether an engine of that life closes: what it has not written then is left to others."""
        engines = [node.built for node in self._cluster.nodes if node.life is life]
        return any(one is not None and one._closing is not None for one in engines)


@contextmanager
def _listening(loop: SimLoop, cluster: Cluster) -> Iterator[None]:
    """While inside, the engine's log goes into the history's and nowhere else."""
    ear = _Ear(loop, cluster)
    before = log.handlers[:], log.propagate, log.level
    log.handlers[:] = [ear]
    log.propagate = False
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.handlers[:], log.propagate = before[0], before[1]
        log.setLevel(before[2])


@contextmanager
def _small_limits(seed: int) -> Iterator[None]:
    """While inside, small processes reach limits that only large ones reach otherwise: each in some histories."""
    with ExitStack() as changed:
        for name, (few, number, remainders) in SMALL_LIMITS.items():
            if seed % number in remainders:
                changed.callback(setattr, limits, name, getattr(limits, name))
                setattr(limits, name, few)
        yield


@contextmanager
def _uncollected() -> Iterator[None]:
    """While inside, the collector of Python rests; then it collects what the history has left, and nothing older."""
    collecting = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        hooks = sys.unraisablehook
        sys.unraisablehook = lambda unraisable: None  # first turns under way at a kill are freed here: void, and silent
        gc.collect()
        sys.unraisablehook = hooks
        gc.unfreeze()
        if collecting:
            gc.enable()


def _bury(loop: SimLoop, cluster: Cluster) -> None:
    """Free what a history leaves, without any of its code doing something that counts."""
    loop.close()
    asyncio._set_running_loop(loop)  # type: ignore[arg-type]  # what the clean-up of dead code asks for is void there
    for engine in cluster.engines:
        worker = engine.worker
        if worker is not None:
            for instance in list(worker.scheduler.instances.values()):
                instance.drop()
            worker.scheduler.cache.clear()
    hooks = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: None
    try:
        for task in asyncio.all_tasks(loop):  # type: ignore[arg-type]
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            if coroutine is not None:
                close(coroutine)
        loop.graveyard.clear()
        loop._timers.clear()
        if cluster.server.connection is not None:
            database.given_back(cluster.server.connection)
        if cluster.server.standby is not None:
            cluster.server.standby.close()
        for held in (cluster.engines, cluster.nodes, cluster.server.stores):
            held.clear()  # a reader of the history must not keep its engines alive
        vars(cluster).pop("client", None)
    finally:
        sys.unraisablehook = hooks
        asyncio._set_running_loop(None)
