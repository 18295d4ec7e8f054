"""A shortage of the worker: the system refuses it threads, descriptors, memory or child OS processes.

That is never a fault of a process: what waits is begun again or handed back, and no attempt is used up. Meanwhile the
worker takes less in hand, and says so once; if it does not recover by itself, it is to be restarted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from perdure import limits
from perdure.clock import microseconds
from perdure.exhaustion import CHILDREN, DESCRIPTORS, MEMORY, THREADS
from perdure.logs import logger
from perdure.telemetry import Telemetry

if TYPE_CHECKING:
    from perdure.runtime.instance import Instance
    from perdure.runtime.scheduler import Scheduler
    from perdure.runtime.steps.attempt_run import AttemptRun

log = logger("worker")

STEADY_SECONDS = 1.0
"""What a worker may have in hand is halved and doubled no more often than this."""
LEAST_SHARE = 1 / 4096

HUNG_STEPS = "threads for sync steps"

_ADVICE = {
    THREADS: "Raise the limits on threads (ulimit -u, TasksMax of systemd, pids.max of a container)",
    DESCRIPTORS: "Raise the limit on open files (ulimit -n), and see what keeps files or connections open",
    MEMORY: "Give this machine more memory, or take less in hand (--in-flight)",
    CHILDREN: "Raise the limits on OS processes (ulimit -u, pids.max of a container), or give fewer --cells",
    HUNG_STEPS: "Give the calls in these steps time limits of their own",
}


class Spell:
    """One shortage: its first and its latest refusal, and since when nothing has become better.

    ``told`` says that a restart was asked for.
    """

    __slots__ = ("began", "last", "stuck", "told")

    def __init__(self, now: float) -> None:
        self.began = now
        self.last = now
        self.stuck = now
        self.told = False


class Shortages:
    """What this worker is short of, and what it takes in hand meanwhile.

    ``active`` says that it is, or was just now. ``unserved`` are the kinds of process that it cannot serve now, each
    with what tells whether that still holds.
    ``restart`` is told why, once, when it does not recover by itself.
    """

    def __init__(self, telemetry: Telemetry, monotonic: Callable[[], float]) -> None:
        self.telemetry = telemetry
        self.unserved: dict[str, Callable[[], bool]] = {}
        self.restart: Callable[[str], None] = lambda why: None
        self.active = False
        self._monotonic = monotonic
        self._spells: dict[str, Spell] = {}
        self._patience: dict[Hashable, tuple[float, float]] = {}
        self._share = 1.0
        self._halved = 0.0

    def refused(self, what: str, why: object) -> None:
        """The system has refused something: take less in hand."""
        self.telemetry.count("shortages")
        now = self._monotonic()
        if now - self._halved >= STEADY_SECONDS or self._share == 1.0:
            self._halved = now
            self._share = max(self._share / 2, LEAST_SHARE)
        self.lasts(what, why)

    def lasts(self, what: str, why: object, *, restart: float | None = None) -> None:
        """Something is short, as is said once; if it does not get better for ``restart`` seconds, so is that."""
        self.active = True
        restart = limits.SHORTAGE_RESTART_SECONDS if restart is None else restart
        now = self._monotonic()
        spell = self._spells.get(what)
        if spell is None:
            spell = self._spells[what] = Spell(now)
            log.error(
                "this worker is short of %s (%s). No process is at fault and no attempt is used up: they wait or are "
                "handed back, and it takes less in hand. %s",
                what, why, _ADVICE[what],
            )  # fmt: skip
        spell.last = now
        if now - spell.stuck >= restart and not spell.told:
            spell.told = True
            log.error("this worker has been short of %s for %.0f s and does not recover: restart it", what, restart)
            self.restart(what)

    def progressed(self, what: str) -> None:
        """There is too little of something, but what there is serves: no restart would make it more."""
        spell = self._spells.get(what)
        if spell is not None:
            spell.stuck = self._monotonic()

    def room(self, capacity: int) -> int:
        """How many processes the worker may have in hand now, of as many as usual."""
        return capacity if self._share == 1.0 else max(1, int(capacity * self._share))

    def serves(self, kind: str) -> bool:
        """Whether processes of a kind can be served now."""
        return kind not in self.unserved

    def patient(self, what: Hashable) -> bool:
        """Whether something may be put off once more: for a minute in all, then it must count."""
        now = self._monotonic()
        if len(self._patience) > limits.CLAIM_ROWS:
            old = now - 2 * limits.SHORTAGE_ATTEMPT_SECONDS
            self._patience = {key: times for key, times in self._patience.items() if times[1] > old}
        first, last = self._patience.get(what, (now, now))
        if now - last > limits.SHORTAGE_ATTEMPT_SECONDS:
            first = now
        self._patience[what] = first, now
        return now - first < limits.SHORTAGE_ATTEMPT_SECONDS

    def put_off_for(self, what: Hashable) -> float:
        """For how many seconds something has been put off."""
        return self._monotonic() - self._patience[what][0] if what in self._patience else 0.0

    def look(self) -> None:
        """Take more in hand again, a second after the last refusal twice as much; say when a shortage is over."""
        if not self.active:
            return
        for kind in [kind for kind, still in self.unserved.items() if not still()]:
            del self.unserved[kind]
        now = self._monotonic()
        for what, spell in list(self._spells.items()):
            if now - spell.last > limits.SHORTAGE_CALM_SECONDS:
                del self._spells[what]
                log.warning("this worker has %s again, after %.0f s", what, spell.last - spell.began)
        quiet = all(now - spell.last >= STEADY_SECONDS for spell in self._spells.values())
        if self._share < 1.0 and quiet and now - self._halved >= STEADY_SECONDS:
            self._halved = now
            self._share = min(1.0, self._share * 2)
            for what in self._spells:
                self.progressed(what)
        self.active = bool(self._spells or self.unserved) or self._share < 1.0


def let_go(scheduler: Scheduler) -> None:
    """Hand back the processes whose steps this worker cannot begin: their leases are not renewed for nothing."""
    agent = scheduler.agent
    agent.shortages.look()
    if not agent.held_up():
        return
    for instance in list(scheduler.instances.values()):
        still = _waits(instance)
        if still is not None:
            if still():
                agent.shortages.unserved[instance.process.kind] = still
            put_off(scheduler, instance)


def put_off(scheduler: Scheduler, instance: Instance) -> None:
    """Hand a process back for some seconds: another worker, or this one later, goes on with it."""
    scheduler.telemetry.count("processes_put_off")
    scheduler.release(instance, microseconds(limits.SHORTAGE_WAIT_SECONDS))


def _waits(instance: Instance) -> Callable[[], bool] | None:
    """What tells that the steps of a process still cannot begin here, if all that it does is to wait for that."""
    still = None
    for attempt_run in instance.in_flight.values():
        if attempt_run.started:
            return None  # it is at work: it goes on here
        still = still or _held_up(attempt_run)
    return None if instance.inputs or instance.events else still


def _held_up(attempt_run: AttemptRun) -> Callable[[], bool] | None:
    agent = attempt_run.agent
    if attempt_run in agent.put_off:
        ask = attempt_run.ask
        since = agent.shortages.put_off_for((attempt_run.instance.process.id, ask.name, ask.place))
        return (lambda: False) if since >= limits.SHORTAGE_WAIT_SECONDS else None
    if attempt_run.call is not None:
        key = attempt_run.call.key
        if agent.threads.held_up(key):
            return lambda: agent.threads.held_up(key)
    elif attempt_run.hard_call is not None and agent.pool is not None and agent.pool.held_up():
        return agent.pool.held_up
    return None
