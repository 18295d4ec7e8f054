"""A circuit breaker: when attempts at a dependency are not made any more, and how they begin again.

Several steps may name one breaker; all workers share its circuit, a row of the store. Workers report failures, and
the row is written only if its version has not changed meanwhile: all that is decided about it is decided here. The
row is advice. Whether it is lost, late or damaged, a step still has one result, and no attempt waits for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from dataclasses import replace as dataclass_replace
from math import isfinite
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from perdure import limits
from perdure.clock import Duration, in_seconds, microseconds
from perdure.errors import DefinitionError
from perdure.kernel.names import check_name
from perdure.kernel.plain import shown

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half-open"
"""The states of a circuit. One that a newer Perdure may add counts as closed: attempts are made."""

MOST = 1_000_000
"""The largest number that a setting or a count of a breaker can be."""
BREAKER_MARK = "breaker "
"""What a process waits for begins with this if it is a breaker."""


class Circuit(Struct, frozen=True, gc=False):
    """One row of the table ``circuit``, for the breaker of that name. Times are microseconds by the store's clock.

    It is in this ``state`` from ``since`` on, for this ``reason``. While it is open, no attempt is made before
    ``until``; while it is half-open, ``until`` is when probes that have not answered are given up. ``forced`` says that
    a person has opened or closed it, and that nothing else changes it: ``who``, ``why`` and ``origin`` describe the
    last change by a person, made at ``changed_at``.

    ``opened`` counts how often it has opened in a row. ``failures`` were counted from ``counted_from`` on. ``probes``
    have begun since it is half-open, or since the ones before were given up, and ``successes`` have ended well.
    ``worker`` is the id of the worker that wrote last: two that decide the same at one instant must not both believe
    that it was theirs which counts.
    """

    name: str
    version: int = 0
    state: str = CLOSED
    since: int = 0
    until: int | None = None
    reason: str = ""
    forced: bool = False
    opened: int = 0
    failures: int = 0
    counted_from: int = 0
    probes: int = 0
    successes: int = 0
    worker: str = ""
    changed_at: int = 0
    who: str = ""
    why: str = ""
    origin: str = ""

    @property
    def closed(self) -> bool:
        """Whether attempts are made as if there were no breaker."""
        return self.state not in (OPEN, HALF_OPEN)

    def fields(self, was: Circuit) -> dict[str, str]:
        """The attributes of a log record that says that the circuit was another one before."""
        return {"breaker": self.name, "state": self.state, "was": was.state}

    def text(self) -> str:
        """How the circuit stands and why, for people."""
        if self.forced:
            why = f": {self.why}" if self.why else ""
            return f"breaker {self.name} is kept {self.state} by {self.who or 'somebody'}{why}"
        what = "half-open, and a probe is under way" if self.state == HALF_OPEN else self.state
        return f"breaker {self.name} is {what}" + (f" ({self.reason})" if self.reason else "")


class Reported(Struct, frozen=True):
    """Attempts of one worker that have failed: how many, and the class of the last error.

    ``telling`` says that the dependency itself has told that it cannot serve, perhaps for so many microseconds: for 0
    it has not said how long.
    """

    number: int
    error: str
    telling: int | None = None

    def and_then(self, later: Reported) -> Reported:
        """Both reports as one."""
        told = [one for one in (self.telling, later.telling) if one is not None]
        return Reported(self.number + later.number, later.error, max(told, default=None))


class Probed(Struct, frozen=True):
    """A probe has ended: whether the dependency served it, the class of its error, and ``opened`` when it began."""

    served: bool
    opened: int
    error: str = ""
    telling: int | None = None


News: TypeAlias = Reported | Probed


@dataclass(frozen=True, slots=True, init=False)
class Breaker:
    """A circuit breaker for one dependency, named by the steps that need it; durations are seconds or timedeltas.

    It opens once ``failures`` attempts have failed within ``within``, counted over all workers from the first of them,
    or at once when a step raises :class:`~perdure.errors.Unavailable`. While it is open no attempt is made: the steps
    wait, and it costs them no attempt. After ``open_for`` it is half-open: ``probes`` attempts at once are let through.
    If all of them are served it closes; if one fails it opens for ``factor`` times as long, at most for ``longest``.
    """

    name: str
    failures: int
    within: float
    open_for: float
    factor: float
    longest: float
    probes: int

    def __init__(
        self,
        name: str,
        *,
        failures: int = 5,
        within: Duration = 60.0,
        open_for: Duration = 30.0,
        factor: float = 2.0,
        longest: Duration = 600.0,
        probes: int = 1,
    ) -> None:
        check_name(name, "the name of a breaker")
        for field, number in (("failures", failures), ("probes", probes)):
            if type(number) is not int or not 1 <= number <= MOST:
                raise _wrong(name, field, number, f"a whole number from 1 to {MOST:,}")
        spans = {"within": in_seconds(within), "open_for": in_seconds(open_for), "longest": in_seconds(longest)}
        for field, span in spans.items():
            if not (_is_number(span) and 0.001 <= span <= limits.BREAKER_LONGEST_SECONDS):
                raise _wrong(name, field, span, "a duration from 0.001 seconds to a day")
        if not (_is_number(factor) and 1.0 <= factor <= MOST):
            raise _wrong(name, "factor", factor, "a number from 1")
        if spans["longest"] < spans["open_for"]:
            raise _wrong(name, "longest", spans["longest"], f"at least open_for ({spans['open_for']:g} s)")
        given = {"name": name, "failures": failures, "factor": float(factor), "probes": probes, **spans}
        for field, value in given.items():
            object.__setattr__(self, field, value)

    def shut(self, circuit: Circuit, now: int) -> bool:
        """Whether no attempt at all may be made now; if not, one may be, or the store may be asked for a probe.

        A time that lies further ahead than any that is written here is not believed: the clock was set back.
        """
        if circuit.closed:
            return False
        if circuit.forced:
            return True
        left = (circuit.until or 0) - now
        ahead = 0 < left <= 2 * microseconds(self.longest)
        return ahead and (circuit.state == OPEN or circuit.probes >= self.probes)

    def after(self, circuit: Circuit, news: News, now: int) -> Circuit:
        """The circuit once it is known what has become of some attempts; the same if that changes nothing."""
        if circuit.forced:
            return circuit
        if isinstance(news, Reported):
            return self._reported(circuit, news, now)
        if circuit.state != HALF_OPEN or circuit.opened != news.opened:
            return circuit if news.served else self._reported(circuit, Reported(1, news.error, news.telling), now)
        if not news.served:
            return self._opened(circuit, now, f"a probe has failed: {news.error}", news.telling)
        if circuit.successes + 1 < self.probes:
            return replace(circuit, successes=circuit.successes + 1)
        reason = "a probe was served" if self.probes == 1 else f"{self.probes} probes were served"
        return replace(circuit, state=CLOSED, since=now, until=None, reason=reason, failures=0, probes=0, successes=0)

    def probing(self, circuit: Circuit, now: int) -> Circuit | None:
        """The circuit with one more probe under way; None if there may be none now, or none is needed."""
        if circuit.closed or self.shut(circuit, now):
            return None
        if circuit.state == HALF_OPEN and circuit.probes < self.probes:
            return replace(circuit, probes=circuit.probes + 1)
        # If the worker that probes dies here, another one may probe once this time has passed.
        since = circuit.since if circuit.state == HALF_OPEN else now
        given_up = now + microseconds(self.open_for)
        return replace(circuit, state=HALF_OPEN, since=since, until=given_up, probes=1, successes=0)

    def wait(self, circuit: Circuit, now: int, chance: float, *, first: bool) -> int:
        """For how many microseconds an attempt waits before it asks again; ``chance`` is from 0 up to 1.

        The ``first`` that waits here asks as soon as the circuit may be half-open. All others come one after another
        during the time behind that: they do not fall on a dependency that is just back all at once.
        """
        look, most = microseconds(limits.BREAKER_LOOK_SECONDS), microseconds(limits.BREAKER_WAIT_SECONDS)
        left = most if circuit.forced else max((circuit.until or 0) - now, 0)
        if circuit.forced or left > most:
            return int(most * (1 + chance) / 2)
        if circuit.state == HALF_OPEN:  # the longer a probe has taken by now, the longer it may still take
            return max(look, int(min(now - circuit.since, left) * (1 + chance) / 2))
        spread = min(max((circuit.until or 0) - circuit.since, look), most)
        return left if first else left + int(spread * chance)

    def _reported(self, circuit: Circuit, report: Reported, now: int) -> Circuit:
        if not circuit.closed:  # these attempts had begun before it opened
            if circuit.state == OPEN and report.telling:
                return replace(circuit, until=max(circuit.until or 0, now + self._told(report.telling)))
            return circuit
        fresh = not circuit.failures or not 0 <= now - circuit.counted_from <= microseconds(self.within)
        failures = report.number + (0 if fresh else circuit.failures)
        counted_from = now if fresh else circuit.counted_from
        if report.telling is not None:
            return self._opened(circuit, now, f"it cannot serve: {report.error}", report.telling)
        if failures >= self.failures:
            times = "1 attempt has" if failures == 1 else f"{failures} attempts have"
            return self._opened(circuit, now, f"{times} failed: {report.error}")
        return replace(circuit, failures=failures, counted_from=counted_from)

    def _opened(self, circuit: Circuit, now: int, reason: str, telling: int | None = None) -> Circuit:
        """Open, longer than the last time unless it was closed for a while."""
        again = circuit.opened and not (circuit.closed and now - circuit.since > microseconds(self.within))
        opened = min(circuit.opened, MOST - 1) + 1 if again else 1
        try:
            span = min(self.open_for * self.factor ** (opened - 1), self.longest)
        except OverflowError:
            span = self.longest
        until = now + max(microseconds(span), self._told(telling or 0))
        return replace(
            circuit, state=OPEN, since=now, until=until, reason=reason, opened=opened, failures=0, probes=0, successes=0
        )

    def _told(self, telling: int) -> int:
        return min(telling, microseconds(self.longest))


SETTINGS = ("failures", "within", "open_for", "factor", "longest", "probes")
"""The properties of a breaker that can be set by its name."""


class BreakerSettings:
    """What is set for breakers by name, from outside of the code; of two sources the later one counts more."""

    def __init__(self, sources: Iterable[tuple[str, Any]] = ()) -> None:
        self._set: dict[str, dict[str, Any]] = {}
        self._made: dict[Breaker, Breaker] = {}
        for source, breakers in sources:
            if not isinstance(breakers, Mapping):
                raise DefinitionError(f"the breakers of {source} have no names. Write {{'bank': {{'failures': 3}}}}.")
            for name, given in breakers.items():
                if not isinstance(given, Mapping) or not given.keys() <= set(SETTINGS):
                    told = ", ".join(map(str, given)) if isinstance(given, Mapping) else shown(given)
                    text = f"the breaker {name!r} of {source} sets {told}. Set some of {', '.join(SETTINGS)}."
                    raise DefinitionError(text)
                self._set[name] = self._set.get(name, {}) | dict(given)
        for name in self._set:
            self.applied(Breaker(name))  # what makes no sense is refused here, and not at an attempt

    def applied(self, breaker: Breaker) -> Breaker:
        """The breaker with what is set for it; a longer ``open_for`` lifts ``longest``, a shorter one lowers it."""
        if breaker.name not in self._set:
            return breaker
        if (made := self._made.get(breaker)) is None:
            given = dict(self._set[breaker.name])
            if "open_for" in given and "longest" not in given and _is_number(in_seconds(given["open_for"])):
                given["longest"] = max(breaker.longest, in_seconds(given["open_for"]))
            if "longest" in given and "open_for" not in given and _is_number(in_seconds(given["longest"])):
                given["open_for"] = min(breaker.open_for, in_seconds(given["longest"]))
            made = self._made[breaker] = dataclass_replace(breaker, **given)
        return made


def forced_open(circuit: Circuit, now: int) -> Circuit:
    """The circuit that a person keeps open."""
    return replace(cleared(circuit, now), state=OPEN, forced=True, reason="")


def forced_closed(circuit: Circuit, now: int) -> Circuit:
    """The circuit that a person keeps closed, whatever fails."""
    return replace(cleared(circuit, now), forced=True)


def cleared(circuit: Circuit, now: int) -> Circuit:
    """The circuit closed and with nothing counted, as it began; from now on failures open it again."""
    return replace(
        circuit, state=CLOSED, since=now, until=None, reason="reset by hand", forced=False, opened=0, failures=0,
        counted_from=0, probes=0, successes=0,
    )  # fmt: skip


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _wrong(name: str, field: str, value: Any, rule: str) -> DefinitionError:
    return DefinitionError(
        f"Breaker({name!r}, {field}={shown(value)}) makes no sense: {field} must be {rule}. Correct the declaration."
    )
