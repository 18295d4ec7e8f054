"""An outage of a kind: many of its processes fail alike, so no other one begins until what they need is back.

It is a circuit breaker for a whole kind, or for a queue. All workers share its state, a note: failures with one
fingerprint are counted there, and each change is written over the version that was read. All that is decided about it
is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure import limits
from perdure.clock import SECOND, Duration, microseconds
from perdure.errors import DefinitionError
from perdure.kernel import breaker as circuits
from perdure.kernel.breaker import BREAKER_MARK, HALF_OPEN, OPEN, Breaker, Circuit, Probed, Reported
from perdure.kernel.failure import Failure
from perdure.kernel.names import check_name
from perdure.kernel.plain import shown
from perdure.kernel.process import Process, Status

PREFIX = "outage "
"""A note whose name begins with this tells of the kind that is named behind it."""
FINGERPRINTS = 20
"""So many causes are counted at once; of more, those that failed least are forgotten."""
CHANGES = 20
LONGEST_SECONDS = 1800.0
SETTINGS = ("failures", "within", "open_for", "factor", "longest", "canaries")
"""What a rule sets."""
DOUBLINGS = 10
"""After so many, one worker lets go more in a second than it claims at once: that is no limit."""


@dataclass(frozen=True, slots=True, init=False)
class OutageRule:
    """When a kind of process is held, and how it comes back; durations are seconds or timedeltas.

    It is held once ``failures`` of its processes have failed or are broken with one fingerprint within ``within``,
    counted over all workers from the first of them. From then on none of the kind is started or goes on, except those
    that a worker has under way. After ``open_for`` so many ``canaries`` are let through. If all of them end well, or
    get as far as to wait, the others are let go: few at first, twice as many every five seconds. If one fails, or waits
    for another attempt of a step, the kind is held for ``factor`` times as long, at most for ``longest``. Raises
    DefinitionError.
    """

    breaker: Breaker = field(repr=False)

    def __init__(
        self,
        *,
        failures: int = 20,
        within: Duration = 300.0,
        open_for: Duration = 60.0,
        factor: float = 2.0,
        longest: Duration = LONGEST_SECONDS,
        canaries: int = 1,
    ) -> None:
        try:
            lifted = max(longest, open_for) if (longest, type(open_for)) == (LONGEST_SECONDS, float) else longest
            breaker = Breaker(
                "outage", failures=failures, within=within, open_for=open_for, factor=factor, longest=lifted,
                probes=canaries,
            )  # fmt: skip
        except DefinitionError as error:
            text = str(error).replace("Breaker('outage', ", "OutageRule(").replace("probes", "canaries")
            raise DefinitionError(text) from None
        object.__setattr__(self, "breaker", breaker)

    def failed(self, state: OutageState, failures: Mapping[str, FailedAlike], now: int) -> OutageState:
        """The state once it is known that processes of the kind have failed, by fingerprint."""
        if not state.circuit.closed or state.circuit.forced:
            return state  # these had begun before
        counts = dict(state.counts)
        for fingerprint, failed in failures.items():
            known = counts.get(fingerprint)
            if known is None or not 0 <= now - known.since <= microseconds(self.breaker.within):
                known = Count(0, now)
            counts[fingerprint] = Count(known.number + failed.number, known.since)
            if counts[fingerprint].number >= self.breaker.failures:
                what = f"{counts[fingerprint].number} processes have failed alike: {failed.error}"
                begun = replace(state, counts={}, fingerprint=fingerprint)
                circuit = self.breaker.after(state.circuit, Reported(self.breaker.failures, failed.error), now)
                return begun.changed(replace(circuit, reason=what), now)
        most = sorted(counts.items(), key=lambda one: (-one[1].number, one[0]))[:FINGERPRINTS]
        return replace(state, counts=dict(most))

    def probing(self, state: OutageState, now: int) -> OutageState | None:
        """The state with one more canary under way; None if there may be none now."""
        circuit = self.breaker.probing(state.circuit, now)
        return None if circuit is None else state.changed(circuit, now)

    def probed(self, state: OutageState, canary: Probed, now: int) -> OutageState:
        """The state once it is known what has become of a canary."""
        if state.circuit.state != HALF_OPEN or state.circuit.opened != canary.opened:
            return state
        circuit = self.breaker.after(state.circuit, canary, now)
        if circuit.closed:
            circuit = replace(circuit, reason=circuit.reason.replace("probe", "canary").replace("canarys", "canaries"))
        elif circuit.state == OPEN:
            circuit = replace(circuit, reason=f"a canary has failed: {canary.error}")
        return state.changed(circuit, now)


class FailedAlike(Struct, frozen=True):
    """Processes that have failed with one fingerprint: how many, and the class of their error."""

    number: int
    error: str


class Canary(Struct, frozen=True):
    """A process of a held ``kind`` that was let through: ``opened`` of its circuit then, and how many events it had."""

    kind: str
    opened: int
    events: int

    def told(self, row: Process, now: int) -> Probed | None:
        """What its row tells of a canary that its worker has let go; None if that is nothing yet.

        It has done what it could if it waits, but not if it waits for another attempt of a step, or has recorded
        nothing: what was cut short by the death of a worker perhaps only waits for the rest of its timer. An end by its
        deadline, or by a person, says nothing of what the kind needs.
        """
        if row.status in (Status.FAILED, Status.BROKEN):
            failure = Failure.shown(row.error or b"")
            return None if failure.from_outside else Probed(False, self.opened, failure.origin[1])
        if row.status is Status.COMPLETED:
            return Probed(True, self.opened)
        if row.status is not Status.RUNNING or row.owner is not None or (row.due_at or 0) <= now:
            return None
        if any(part.startswith(("step ", "undo ", BREAKER_MARK)) for part in (row.awaiting or "").split(", ")):
            return Probed(False, self.opened, f"{row.awaiting} is to be tried again")
        waits = row.events > self.events or (not self.events and row.awaiting is not None)
        return Probed(True, self.opened) if waits else None

    def void(self, row: Process, now: int) -> bool:
        """Whether its row tells nothing, and will not: it has ended or is held for another reason, or is due again."""
        return row.status is not Status.RUNNING or (row.owner is None and (row.due_at or 0) <= now)


class Count(Struct, frozen=True):
    """How many processes have failed with one fingerprint, from ``since`` on."""

    number: int
    since: int


class OutageChange(Struct, frozen=True):
    """One change of the state, for people."""

    at: int
    state: str
    reason: str
    who: str = ""


class OutageState(Struct, frozen=True):
    """The content of a note on a kind: its ``circuit``, which has no name, and its last ``changes``.

    ``counts`` are the failures while it is closed. ``fingerprint`` is what the last outage was begun by, empty if a
    person began it. From ``released_at`` on its processes are let go little by little; 0 says that none waits for that.
    """

    circuit: Circuit = Circuit("")
    counts: dict[str, Count] = {}
    fingerprint: str = ""
    released_at: int = 0
    changes: tuple[OutageChange, ...] = ()

    @property
    def held(self) -> bool:
        """Whether processes of the kind are held, except for canaries."""
        return not self.circuit.closed

    def allowance(self, now: int) -> int | None:
        """How many processes one worker lets go in a second: none while they are held; None is no limit."""
        if self.held:
            return 0
        seconds = (now - self.released_at) / SECOND
        doublings = int(max(seconds, 0) / limits.OUTAGE_DOUBLED_SECONDS)
        return None if not self.released_at or doublings >= DOUBLINGS else 2**doublings

    @property
    def since(self) -> int:
        """When the outage has begun; once it is over, when that was."""
        if not self.held:
            return self.released_at
        begun = self.circuit.since
        for change in reversed(self.changes):
            if change.state not in (OPEN, HALF_OPEN):
                break
            begun = change.at
        return begun

    @property
    def until(self) -> int | None:
        """When the next canary is let through, or, once it is over, the last that waits; None if a person ends it."""
        if not self.held:
            return self.released_at + DOUBLINGS * microseconds(limits.OUTAGE_DOUBLED_SECONDS)
        return None if self.circuit.forced else self.circuit.until

    def text(self, kind: str) -> str:
        """Why processes of the kind wait, for people."""
        circuit = self.circuit
        if not self.held:
            return f"the outage of {kind} is over: what waits is let go, few at first"
        if circuit.forced:
            return f"{kind} is held by {circuit.who or 'somebody'}" + (f": {circuit.why}" if circuit.why else "")
        return f"{kind} is held: {circuit.reason}" + ("; a canary tries it" if circuit.state == HALF_OPEN else "")

    def changed(self, circuit: Circuit, now: int, who: str = "") -> OutageState:
        """With this circuit; a change of what people see is kept."""
        was = self.circuit
        after = replace(self, circuit=circuit)
        if (was.state, was.forced) == (circuit.state, circuit.forced):
            return after
        change = OutageChange(now, circuit.state, circuit.reason, who)
        released = now if was.state in (OPEN, HALF_OPEN) and circuit.closed else 0 if not circuit.closed else None
        after = replace(after, changes=(*self.changes, change)[-CHANGES:])
        return after if released is None else replace(after, released_at=released)

    def begun_by(self, who: str, why: str, origin: str, now: int) -> OutageState:
        """Held by a person until a person ends it: no canary is let through."""
        said = {"who": who, "why": why, "origin": origin, "changed_at": now, "reason": why or "begun by hand"}
        circuit = replace(circuits.forced_open(self.circuit, now), **said)
        return replace(self.changed(circuit, now, who), counts={}, fingerprint="")

    def ended_by(self, who: str, why: str, origin: str, now: int) -> OutageState:
        """Ended by a person: processes are let go little by little."""
        said = {"who": who, "why": why, "origin": origin, "changed_at": now, "reason": why or "ended by hand"}
        circuit = replace(circuits.cleared(self.circuit, now), **said)
        return replace(self.changed(circuit, now, who), counts={})


def rules_of(source: str, given: Any) -> dict[str, OutageRule]:
    """The rules that a program or a file gives, by kind; raises DefinitionError."""
    if not isinstance(given, Mapping):
        raise DefinitionError(f"the outages of {source} have no kinds. Write {{'order': {{'failures': 20}}}}.")
    rules = {}
    for kind, numbers in given.items():
        if not isinstance(numbers, Mapping) or not numbers.keys() <= set(SETTINGS):
            told = ", ".join(map(str, numbers)) if isinstance(numbers, Mapping) else shown(numbers)
            text = f"the outage of {kind!r} in {source} sets {told}. Set some of {', '.join(SETTINGS)}."
            raise DefinitionError(text)
        rules[check_name(kind, "the kind of an outage")] = OutageRule(**numbers)
    return rules
