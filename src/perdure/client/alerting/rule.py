"""A rule that alerts, as it is written in code: which condition, from which threshold on, and who is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from perdure import limits
from perdure.client.alerting.destination import checked_destination
from perdure.client.alerting.silence import checked_hours
from perdure.clock import Duration, in_seconds, microseconds
from perdure.errors import DefinitionError, InvalidInput, InvalidKey
from perdure.kernel.alerting import AlertCondition, AlertPlan
from perdure.kernel.names import check_name, near
from perdure.kernel.plain import shown

AlertWhen: TypeAlias = Literal[
    "broken", "overdue", "unpolled", "failures", "operation-finished", "operation-relapsed", "sweep-silent", "outage",
    "breaker-open",
]  # fmt: skip
QUERIED = (AlertCondition.BROKEN, AlertCondition.OVERDUE, AlertCondition.FAILURES)
"""The conditions that look at processes, which a query may narrow."""
_AT_LEAST: Mapping[AlertCondition, int] = {AlertCondition.FAILURES: 10}
_LASTING: Mapping[AlertCondition, float] = {
    AlertCondition.OVERDUE: 60.0,
    AlertCondition.UNPOLLED: 60.0,
    AlertCondition.SWEEP_SILENT: limits.SWEEP_SILENT_SECONDS,
}
_DESTINATIONS = 10
_MOST = 1_000_000_000


@dataclass(frozen=True, slots=True)
class AlertRule:
    """A rule that alerts: ``when`` something is so, tell it ``to`` some places; durations are seconds or timedeltas.

    ::

        AlertRule("night", "broken", to=["mailto:ops@example.org"], where="kind = order")

    ``when`` is *broken* (processes are broken), *overdue* (they are due, and for ``lasting`` nobody has looked at
    them), *unpolled* (steps wait in a queue that no live worker serves), *failures* (``at_least`` processes have failed
    with one fingerprint within ``within``; default: 10 in an hour), *operation-finished*, *operation-relapsed*
    (``at_least`` processes are back where an operation has found them), *sweep-silent* (a sweep that finds what is
    stuck does not pass), *outage* (a kind is held) or *breaker-open* (a circuit breaker does not let attempts through,
    or only probes). ``where`` is a query that narrows the first two and *failures*. ``at_least`` is from how many
    processes on, of one kind or one fingerprint; ``lasting`` how long it must have been so (default: a minute for what
    is overdue, unpolled or silent, else 0).

    Places are ``log``, URLs like ``https://…``, and ``mailto:…``. What they were told they are not told again, but what
    comes new is; with ``resolved`` they are also told once when it is over. ``per_hour`` is how many messages they get
    in an hour at most: what comes in between is counted in the next one. In the hours of ``quiet``, each like
    ``"22:00-06:00 Europe/Zurich"``, nothing is sent, and what still is so afterwards is told then. A worker looks each
    ``every`` (default: 30 s), and less often where a look takes long. Raises DefinitionError.
    """

    name: str
    when: AlertWhen
    to: Sequence[str] = ("log",)
    where: str = ""
    at_least: int | None = None
    within: Duration = 3600.0
    lasting: Duration | None = None
    every: Duration = 30.0
    per_hour: int = 12
    resolved: bool = False
    quiet: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuse what makes no sense, with the reason."""
        try:
            self.plan()
        except (InvalidInput, InvalidKey) as error:
            raise DefinitionError(f"AlertRule({self.name!r:.100}): {error}") from None

    def plan(self) -> AlertPlan:
        """The rule as it is stored."""
        check_name(self.name, "the name of the rule")
        when = _condition(self.when)
        if not isinstance(self.where, str) or (self.where.strip() and when not in QUERIED):
            raise InvalidInput(f"where= is a query, for {', '.join(QUERIED)}. Leave it out for {when}.")
        if type(self.resolved) is not bool:
            raise InvalidInput(f"resolved={shown(self.resolved)}. Give True or False.")
        lasting = _LASTING.get(when, 0.0) if self.lasting is None else self.lasting
        return AlertPlan(
            self.name,
            when,
            _places(self.to),
            self.where.strip(),
            _number("at_least", _AT_LEAST.get(when, 1) if self.at_least is None else self.at_least),
            _duration("within", self.within, 1.0),
            _duration("lasting", lasting, 0.0),
            _duration("every", self.every, 1.0),
            _number("per_hour", self.per_hour),
            self.resolved,
            checked_hours([self.quiet] if isinstance(self.quiet, str) else self.quiet),
        )


def _condition(when: Any) -> AlertCondition:
    try:
        return AlertCondition(when)
    except ValueError:
        known = [one.value for one in AlertCondition]
        text = f"there is no condition {shown(when)}.{near(str(when), known)} There are {', '.join(known)}."
        raise InvalidInput(text) from None


def _places(given: Any) -> tuple[str, ...]:
    places = [given] if isinstance(given, str) else list(given) if isinstance(given, Sequence) else []
    if not 1 <= len(places) <= _DESTINATIONS:
        raise InvalidInput(f"to= has {len(places)} places. Give 1 to {_DESTINATIONS}: 'log', 'https://…', 'mailto:…'.")
    return tuple(dict.fromkeys(map(checked_destination, places)))


def _number(what: str, given: Any) -> int:
    if type(given) is not int or not 1 <= given <= _MOST:
        raise InvalidInput(f"{what}={shown(given)}. Give a whole number from 1.")
    return given


def _duration(what: str, given: Any, least: float) -> int:
    seconds = in_seconds(given)
    right = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not right or not least <= seconds <= limits.FARTHEST_SECONDS:
        raise InvalidInput(f"{what}={shown(given)}. Give seconds or a timedelta, {least:g} s or more.")
    return microseconds(seconds)
