"""A shortage of the worker: the system refuses it threads, descriptors, memory or child OS processes, or it ends.

That is never a fault of a process: steps begin again or processes are handed back, and no attempt is used up. Meanwhile
the worker holds fewer processes, and logs that once; if it does not recover by itself, it must be restarted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Set

from perdure import limits
from perdure.exhaustion import CHILDREN, DESCRIPTORS, EXECUTORS, MEMORY, THREADS
from perdure.logs import logger
from perdure.telemetry import Telemetry

log = logger("worker")

STEADY_SECONDS = 1.0
"""The number of processes that a worker may hold is halved and doubled no more often than this."""
LEAST_SHARE = 1 / 4096

HUNG_STEPS = "threads for sync steps"

_ADVICE = {
    THREADS: "Raise the limits on threads (ulimit -u, TasksMax of systemd, pids.max of a container)",
    DESCRIPTORS: "Raise the limit on open files (ulimit -n), and see what keeps files or connections open",
    MEMORY: "Give this machine more memory, or let the worker hold fewer processes (--in-flight)",
    CHILDREN: "Raise the limits on OS processes (ulimit -u, pids.max of a container), or give fewer --cells",
    EXECUTORS: "Python shuts them down when the main thread ends: let that wait for all others",
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
    """What this worker is short of, and how many processes it may hold meanwhile.

    ``active`` says that something is short, or was just now. ``unserved`` are the kinds of process that the worker
    cannot serve now, each with a function that tells whether that still holds. ``held_back`` are the kinds that
    outages hold: the end of a shortage does not end an outage, nor the other way round.
    ``worn_out`` is called once, with what is short, when the worker does not recover by itself.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        monotonic: Callable[[], float],
        worn_out: Callable[[str], None] = lambda what: None,
    ) -> None:
        self.telemetry = telemetry
        self.unserved: dict[str, Callable[[], bool]] = {}
        self.held_back: Set[str] = frozenset()
        self.active = False
        self._monotonic = monotonic
        self._worn_out = worn_out
        self._spells: dict[str, Spell] = {}
        self._patience: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # in the order of their last times
        self._share = 1.0
        self._halved = 0.0

    def refused(self, what: str, why: object) -> None:
        """The system has refused something: hold fewer processes."""
        self.telemetry.count("shortages")
        now = self._monotonic()
        if now - self._halved >= STEADY_SECONDS or self._share == 1.0:
            self._halved = now
            self._share = max(self._share / 2, LEAST_SHARE)
        self.lasts(what, why)

    def lasts(self, what: str, why: object, *, restart: float | None = None) -> None:
        """Log once that something is short, and once more if it does not get better for ``restart`` seconds."""
        self.active = True
        restart = limits.SHORTAGE_RESTART_SECONDS if restart is None else restart
        now = self._monotonic()
        spell = self._spells.get(what)
        if spell is None:
            spell = self._spells[what] = Spell(now)
            log.error(
                "this worker is short of %s (%s). No process is at fault and no attempt is used up: processes wait or "
                "are handed back, and the worker holds fewer of them. %s",
                what, why, _ADVICE[what],
            )  # fmt: skip
        spell.last = now
        if now - spell.stuck >= restart and not spell.told:
            spell.told = True
            log.error("this worker has been short of %s for %.0f s and does not recover: restart it", what, restart)
            self._worn_out(what)

    def progressed(self, what: str) -> None:
        """Something is short, but what there is still serves: a restart would not help."""
        spell = self._spells.get(what)
        if spell is not None:
            spell.stuck = self._monotonic()

    def room(self, capacity: int) -> int:
        """How many processes the worker may hold now, of its usual ``capacity``."""
        return capacity if self._share == 1.0 else max(1, int(capacity * self._share))

    def cannot_serve(self, kind: str, still: Callable[[], bool]) -> None:
        """Processes of a kind cannot be served until ``still`` says that this is over."""
        self.unserved[kind] = still
        self.active = True

    def hold_back(self, kinds: Set[str]) -> None:
        """Outages hold these kinds from now on, and no others."""
        self.held_back = kinds
        self.active = self.active or bool(kinds)

    def serves(self, kind: str) -> bool:
        """Whether processes of a kind can be served now."""
        return kind not in self.unserved and kind not in self.held_back

    def patient(self, what: Hashable) -> bool:
        """Whether something may be put off once more: for a minute in all, then its failure must count."""
        patience, now = self._patience, self._monotonic()
        first, last = patience.get(what, (now, now))
        if now - last > limits.SHORTAGE_ATTEMPT_SECONDS:
            first = now
        patience[what] = first, now
        patience.move_to_end(what)
        old = now - 2 * limits.SHORTAGE_ATTEMPT_SECONDS
        while next(iter(patience.values()))[1] <= old:
            patience.popitem(last=False)
        return now - first < limits.SHORTAGE_ATTEMPT_SECONDS

    def put_off_for(self, what: Hashable) -> float:
        """For how many seconds something has been put off."""
        return self._monotonic() - self._patience[what][0] if what in self._patience else 0.0

    def look(self) -> None:
        """Allow twice as many processes again, a second after the last refusal; log when a shortage is over."""
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
        self.active = bool(self._spells or self.unserved or self.held_back) or self._share < 1.0
