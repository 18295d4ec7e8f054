"""Retries of a step: how often, how soon and after which errors it is tried again; and the record of a failed attempt.

The event of a failed attempt keeps its number and its error, so that the history of retries survives revival.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, ClassVar

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
    ) -> None:
        on, never = _classes("on", on) or (Exception,), _classes("never", never)
        delays = _delays(backoffs)
        if attempts is None:
            attempts = 1 + len(delays) if delays else ATTEMPTS
        given = (
            attempts, in_seconds(first), factor, in_seconds(cap), jitter, in_seconds(total), on, never, budget, delays,
            offsets,
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
        if self.first > self.cap:
            raise _wrong("first", self.first, f"at most cap ({self.cap} s)")
        for named in on:
            if issubclass(named, (*HOPELESS, *never)):
                raise _wrong("on", named.__name__, "errors that may be retried; this one never is")

    def retries(self, error: BaseException) -> bool:
        """Whether an attempt that ended with ``error`` may be followed by another; exclusion wins."""
        if isinstance(error, BaseExceptionGroup):
            return all(map(self.retries, error.exceptions))
        return isinstance(error, self.on) and not isinstance(error, self.never) and not isinstance(error, HOPELESS)

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

    def next_delay(self, failed_attempts: int, spent: float, chance: float) -> float | None:
        """Seconds until the next attempt, or None if attempts or total time (``spent`` so far) allow no other."""
        if failed_attempts >= self.attempts:
            return None
        delay = self.delay(failed_attempts, chance, spent)
        return None if self.total is not None and spent + delay > self.total else delay


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


Retry.NONE = Retry(attempts=1)


class FailedAttempt(Struct, frozen=True, omit_defaults=True):
    """The payload of an ``ATTEMPT_FAILED`` event. Times are microseconds by the store's clock.

    ``attempt`` counts from 1; ``since`` is when the first attempt began; the next begins at ``retry_at``.
    """

    attempt: int
    since: int
    retry_at: int
    failure: Failure

    def encode(self) -> bytes:
        """The JSON that is stored."""
        return json.encode(self)


decode_attempt = reader(FailedAttempt, "a recorded attempt")
"""The failed attempt that an event keeps."""
