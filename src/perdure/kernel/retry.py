"""Retries of a step: how often, how soon and after which errors it is tried again; and the record of a failed attempt.

The event of a failed attempt keeps its number, its error and where in the chain of thresholds the step stands, so that
the history of retries survives revival.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from msgspec import Struct, json

from perdure import limits
from perdure.clock import Duration, in_seconds
from perdure.errors import DefinitionError, InvalidInput, Permanent, WorkflowMisuse
from perdure.kernel.failure import Failure
from perdure.kernel.plain import shown
from perdure.kernel.stored import reader

HOPELESS = (Permanent, DefinitionError, InvalidInput, WorkflowMisuse)
"""Errors that another attempt cannot cure; no policy retries them."""

ATTEMPTS = 3
"""How often a step is tried of which nothing else is said."""

ALERT: Literal["alert"] = "alert"
BREAK: Literal["break"] = "break"

Stage: TypeAlias = "Retry | Mapping[str, Any] | Literal['alert', 'break']"
"""What comes at a threshold: a retry with other numbers (in a file their names and values), an alert, or a break."""

Waits: TypeAlias = "Mapping[type[BaseException], Retry | Duration]"
"""How long to wait after errors of a class, instead of the ordinary wait: by a Retry's numbers, or always so long."""

ErrorClasses = type[BaseException] | tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True, init=False)
class Retry:
    """When to try a failed step again; durations are seconds or timedeltas. ``attempts`` counts all executions.

    The delay after the n-th failure is ``first * factor ** (n - 1)``, at most ``cap``, spread by ``jitter`` (0.2 is
    20 % of the interval up or down, 0 is exact). With ``offsets`` it counts from the beginning of the first attempt:
    retries come after 3, 6, 12 seconds, not after 3, 9, 21. ``backoffs`` are delays of your own, one for each retry;
    unless ``attempts`` says otherwise there are as many retries, and the last one is used for any more. ``total``
    bounds the whole: no attempt starts later than that after the first. Errors of the classes ``on`` (empty means all)
    are retried, except those of a class in ``never``.

    ``budget`` bounds the retries that one worker makes of the step while it does not succeed: each retry costs one,
    each success earns one back, and time earns the whole budget back in 50 seconds. Once it is spent, a retry waits and
    is not given up; only ``total`` ends that wait, with an attempt. None is no bound.

    The timeout of each attempt is ``timeout_factor`` times that of the attempt before, but no longer than
    ``timeout_cap``.

    ``waits`` are other waits after errors of some classes: ``{RateLimited: Retry(first=30, cap=600), Busy: 0}``, by the
    numbers of another Retry or always so long. The nearest class counts, also in later stages; the attempts, and all
    bounds, are those of the whole.

    ``then`` is what comes when all this is used up, one after the other: "alert" tells people, by a warning in the log;
    another Retry makes as many attempts as it says, with its own numbers; "break" parks the process as broken for a
    person. Without it, or behind the last Retry, the step has failed.
    """

    attempts: int
    first: float
    factor: float
    cap: float
    jitter: float
    total: float | None
    on: ErrorClasses
    never: ErrorClasses
    budget: int | None
    backoffs: tuple[float, ...]
    offsets: bool
    timeout_factor: float
    timeout_cap: float | None
    then: tuple[Retry | Literal["alert", "break"], ...]
    waits: tuple[tuple[type[BaseException], Retry], ...]

    NONE: ClassVar[Retry]

    def __init__(
        self,
        attempts: int | None = None,
        first: Duration = 1.0,
        factor: float = 2.0,
        cap: Duration = 60.0,
        jitter: float = 0.2,
        total: Duration | None = None,
        on: ErrorClasses = (Exception,),
        never: ErrorClasses = (),
        budget: int | None = limits.RETRY_BUDGET_TRIES,
        backoffs: Sequence[Duration] = (),
        offsets: bool = False,
        timeout_factor: float = 1.0,
        timeout_cap: Duration | None = None,
        then: Sequence[Stage] = (),
        waits: Waits | Sequence[tuple[type[BaseException], Retry]] = (),
    ) -> None:
        on, never = _classes("on", on) or (Exception,), _classes("never", never)
        delays = _delays(backoffs)
        if attempts is None:
            attempts = 1 + len(delays) if delays else ATTEMPTS
        given = (
            attempts, in_seconds(first), factor, in_seconds(cap), jitter, in_seconds(total), on, never, budget, delays,
            offsets, timeout_factor, in_seconds(timeout_cap), _stages(then), _waits(waits),
        )  # fmt: skip
        for field, value in zip(fields(self), given, strict=True):
            object.__setattr__(self, field.name, value)
        if type(self.attempts) is not int or self.attempts < 1:
            raise _wrong("attempts", self.attempts, "a whole number from 1 (1 means no retry)")
        _check_number("first", self.first, 0.0, None)
        _check_number("factor", self.factor, 1.0, None)
        _check_number("cap", self.cap, 0.0, None)
        _check_number("jitter", self.jitter, 0.0, 1.0)
        if self.total is not None:
            _check_number("total", self.total, 0.0, None)
        if self.budget is not None and (type(self.budget) is not int or self.budget < 1):
            raise _wrong("budget", self.budget, "a whole number from 1, or None for no bound")
        if not isinstance(self.offsets, bool):
            raise _wrong("offsets", self.offsets, "True or False")
        _check_number("timeout_factor", self.timeout_factor, 1.0, None)
        if self.timeout_cap is not None:
            _check_number("timeout_cap", self.timeout_cap, 0.001, None)
        if self.first > self.cap:
            raise _wrong("first", self.first, f"at most cap ({self.cap} s)")
        for what, named in (*(("on", one) for one in on), *(("waits", one) for one, _ in self.waits)):
            if issubclass(named, (*HOPELESS, *never)):
                raise _wrong(what, named.__name__, "of errors that may be retried; this one never is")

    def retries(self, error: BaseException) -> bool:
        """Whether an attempt that ended with ``error`` may be followed by another; exclusion wins."""
        if isinstance(error, BaseExceptionGroup):
            return all(map(self.retries, error.exceptions))
        return isinstance(error, self.on) and not isinstance(error, self.never) and not isinstance(error, HOPELESS)

    def wait_after(self, error: BaseException | Sequence[str]) -> Retry:
        """The retry whose waits count after an error, or after one whose classes have these names, nearest first."""
        if not self.waits:
            return self
        if isinstance(error, BaseExceptionGroup):
            found = [one for one in map(self.wait_after, error.exceptions) if one is not self]
            return max(found, key=lambda one: one.delay(1, 0.5), default=self)
        if isinstance(error, BaseException):
            by_class = dict(self.waits)
            return next((by_class[one] for one in type(error).__mro__ if one in by_class), self)
        by_name = {one.__qualname__: retry for one, retry in self.waits}
        return next((by_name[name] for name in error if name in by_name), self)

    def delay(self, failed_attempts: int, chance: float, spent: float = 0.0) -> float:
        """Seconds to wait after that many failed attempts; ``chance`` is from 0 up to 1 and 0.5 means no jitter.

        ``spent`` seconds have gone since the first attempt began.
        """
        spread = 1.0 + self.jitter * (2.0 * chance - 1.0)
        if self.backoffs:
            interval = self.backoffs[min(failed_attempts, len(self.backoffs)) - 1] * spread
            return max(0.0, interval - spent) if self.offsets else interval
        try:
            interval = self.first * self.factor ** (failed_attempts - 1)
        except OverflowError:
            interval = self.cap
        if self.offsets:
            return min(max(0.0, interval * spread - spent), self.cap)
        return min(min(interval, self.cap) * spread, self.cap)

    def next_delay(
        self, failed_attempts: int, spent: float, chance: float, *, later: bool = False, wait: Retry | None = None
    ) -> float | None:
        """Seconds until the next attempt, or None if attempts or total time (``spent`` so far) allow no other.

        ``later``: the attempts are those of this retry as a later stage, which begins with a wait. ``wait`` is the
        retry whose waits count, if it is another one.
        """
        if failed_attempts >= (self.more if later else self.attempts):
            return None
        delay = (wait or self).delay(failed_attempts + later, chance, spent)
        return None if self.total is not None and spent + delay > self.total else delay

    @property
    def more(self) -> int:
        """How many attempts it makes as a later stage: as many as it says, or one for each back-off."""
        return len(self.backoffs) if self.attempts == 1 + len(self.backoffs) and self.backoffs else self.attempts

    def plan(
        self,
        failed_attempts: int,
        spent: float,
        chance: float,
        stage: int = 0,
        before: int = 0,
        error: BaseException | Sequence[str] = (),
    ) -> AfterFailure:
        """What follows a failed attempt, which stood at ``stage`` of the chain; ``before`` came before that stage.

        ``error`` is what it ended with, or the names of its classes.
        """
        by_error = self.wait_after(error)
        wait = None if by_error is self else by_error
        chain = (self, *self.then)
        alert = False
        for at in range(min(stage, len(chain) - 1), len(chain)):
            one = chain[at]
            if isinstance(one, Retry):
                delay = one.next_delay(failed_attempts - before, spent, chance, later=at > 0, wait=wait)
                if delay is not None:
                    return AfterFailure(delay, at, before, alert)
            elif one == BREAK:
                return AfterFailure(None, at, before, alert, breaks=True)
            else:
                alert = True
            before = failed_attempts
        return AfterFailure(None, len(chain) - 1, before, alert)

    def next_timeout(self, step: float, last: float, stage: int) -> float:
        """Seconds that an attempt at ``stage`` may take, after one with ``last``; ``step`` is the step's own limit."""
        one = (self, *self.then)[min(stage, len(self.then))]
        factor, cap = (one.timeout_factor, one.timeout_cap) if isinstance(one, Retry) else (1.0, None)
        longer = last * factor
        return max(step, longer if cap is None else min(longer, max(cap, last)))

    def numbers(self) -> dict[str, Any]:
        """Its properties as plain values, without the error classes."""
        found = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _CLASSES}
        return found | {"then": plain_stages(self.then)}


class AfterFailure(NamedTuple):
    """What follows a failed attempt: another one after ``delay`` seconds, a break, or (neither) the step has failed.

    ``stage`` is the place in the chain at which that attempt stands, ``before`` how many attempts there were before it.
    ``alert``: people are to be told.
    """

    delay: float | None
    stage: int
    before: int
    alert: bool
    breaks: bool = False


_CLASSES = ("on", "never", "waits")
_OF_THE_WHOLE = ("on", "never", "waits", "budget", "offsets", "then")
_OF_A_WAIT = ("first", "factor", "cap", "jitter", "backoffs")
"""What only the first stage of a chain can say, for all of it."""


def _stages(then: Any) -> tuple[Any, ...]:
    if isinstance(then, str | Mapping) or not isinstance(then, Sequence):
        raise _wrong("then", then, "a list of Retry, 'alert' and, at its end, 'break'")
    stages = tuple(_stage(one) for one in then)
    if BREAK in stages[:-1]:
        raise _wrong("then", then, "nothing behind 'break', which leaves the step to a person")
    totals = [one.total for one in stages if isinstance(one, Retry) and one.total is not None]
    if totals != sorted(totals):
        raise _wrong("then", then, "of totals that grow: each counts from the first attempt of all")
    return stages


def _stage(one: Any) -> Any:
    if isinstance(one, str) and one in (ALERT, BREAK):
        return one
    if isinstance(one, Mapping):
        if not one.keys() <= {field.name for field in fields(Retry)}.difference(_OF_THE_WHOLE):
            raise _wrong("then", one, f"of stages that set numbers of a Retry, none of {', '.join(_OF_THE_WHOLE)}")
        given: dict[str, Any] = {name: None if value == "none" else value for name, value in one.items()}
        one = Retry(**given)
    if not isinstance(one, Retry):
        raise _wrong("then", one, "a list of Retry, 'alert' and, at its end, 'break'")
    for name in _OF_THE_WHOLE:
        if getattr(one, name) != getattr(PLAIN, name):
            raise _wrong("then", f"Retry({name}=...)", f"of stages without {name}=: the first Retry says it for all")
    return one


def plain_stages(stages: Sequence[Any]) -> tuple[Any, ...]:
    """The stages of a chain as plain values: of a retry what differs from the default."""
    return tuple(_plain_stage(one) if isinstance(one, Retry) else one for one in _stages(stages))


def _plain_stage(retry: Retry) -> dict[str, Any]:
    names = [field.name for field in fields(retry) if field.name not in _OF_THE_WHOLE]
    found = {name: getattr(retry, name) for name in names if getattr(retry, name) != getattr(PLAIN, name)}
    return {"attempts": retry.attempts} | found


def _waits(given: Any) -> tuple[tuple[type[BaseException], Retry], ...]:
    """The waits of each class; raises DefinitionError."""
    if not isinstance(given, Mapping | tuple):
        raise _wrong("waits", given, "error classes with a Retry or a duration each: {RateLimited: Retry(first=30)}")
    found = []
    for named, one in dict(given).items():
        _classes("waits", named)
        if not isinstance(one, Retry):
            seconds = in_seconds(one)
            _check_number("waits", seconds, 0.0, None)
            one = Retry(first=seconds, factor=1.0, cap=seconds)
        for field in fields(one):
            free = field.name in _OF_A_WAIT or (field.name == "attempts" and one.backoffs)
            if not free and getattr(one, field.name) != getattr(PLAIN, field.name):
                text = f"of retries that set {', '.join(_OF_A_WAIT)}: the whole Retry says the rest"
                raise _wrong("waits", f"Retry({field.name}=...)", text)
        found.append((named, one))
    return tuple(found)


def _classes(name: str, value: Any) -> tuple[type[BaseException], ...]:
    classes = value if isinstance(value, tuple) else (value,)
    for one in classes:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise _wrong(name, one, "an error class or a tuple of error classes")
    return classes


def _delays(backoffs: Any) -> tuple[float, ...]:
    if isinstance(backoffs, str) or not isinstance(backoffs, Sequence):
        raise _wrong("backoffs", backoffs, "a list of seconds or timedeltas, one for each retry")
    delays = tuple(in_seconds(one) for one in backoffs)
    for one in delays:
        _check_number("backoffs", one, 0.0, None)
    return delays


def _check_number(name: str, value: Any, low: float, high: float | None) -> None:
    right = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= low
    if not right or (high is not None and value > high):
        raise _wrong(name, value, f"a number from {low:g}" + (f" to {high:g}" if high is not None else ""))


def _wrong(name: str, value: Any, rule: str) -> DefinitionError:
    return DefinitionError(
        f"Retry({name}={shown(value)}) makes no sense: {name} must be {rule}. Correct the declaration."
    )


PLAIN = Retry()
"""The policy of a step of which nothing else is said."""
Retry.NONE = Retry(attempts=1)


class FailedAttempt(Struct, frozen=True, omit_defaults=True):
    """The payload of an ``ATTEMPT_FAILED`` event. Times are microseconds by the store's clock.

    ``attempt`` counts from 1; ``since`` is when the first attempt began; the next begins at ``retry_at``, and may take
    ``timeout`` seconds if that is more than the step's own timeout. It stands at ``stage`` of the retry's chain, with
    ``before`` attempts before that. If it ``breaks``, none follows: a person must let the process go on.
    """

    attempt: int
    since: int
    retry_at: int
    failure: Failure
    stage: int = 0
    before: int = 0
    timeout: float = 0.0
    breaks: bool = False

    def encode(self) -> bytes:
        """The JSON that is stored."""
        return json.encode(self)


decode_attempt = reader(FailedAttempt, "a recorded attempt")
"""The failed attempt that an event keeps."""
