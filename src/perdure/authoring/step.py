"""A step: a side effect that a workflow asks for; it may run more than once, but its result counts once.

A transactional step commits its effect together with its result; settings that it cannot have are refused when it is
defined.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from copy import copy
from dataclasses import replace
from functools import update_wrapper
from inspect import iscoroutinefunction
from threading import get_ident
from typing import Any, Generic, ParamSpec, TypeVar, overload

from msgspec import structs

from perdure.authoring.attempt import ATTEMPT, Attempt, attempt
from perdure.authoring.definitions import definition_of, name_of, plain_function, seconds
from perdure.authoring.isolation import confinement
from perdure.authoring.queue import Accept, as_classes, check_classes, note, routing, task_process, with_numbers
from perdure.authoring.undo import undo_of
from perdure.clock import Duration
from perdure.errors import DefinitionError
from perdure.kernel.breaker import Breaker
from perdure.kernel.call_shape import CallShape
from perdure.kernel.declared_error import NOTHING, declared
from perdure.kernel.failure import Failure
from perdure.kernel.message import MessageType
from perdure.kernel.plain import shown
from perdure.kernel.policy import OF_RETRY, fitting, setting_of
from perdure.kernel.process import Process
from perdure.kernel.retry import Retry
from perdure.limits import QUEUED_STEP_TIMEOUT_SECONDS, STEP_TIMEOUT_SECONDS, TRANSACTION_TIMEOUT_SECONDS
from perdure.turns.ask import Ask, AskedStep, OnParentEnd
from perdure.turns.current import turns

__all__ = ["ATTEMPT", "Ask", "Attempt", "Step", "attempt", "step"]

P = ParamSpec("P")
R = TypeVar("R")
_DEFAULT_RETRY = Retry()


class Step(Generic[P, R]):
    """A function marked with :func:`step`. A call in a workflow asks for the step; elsewhere the function just runs."""

    revival_delay: float | None = None
    """Seconds after the loss of its worker until it begins again; None is at once, 0 not by itself."""
    set_here: frozenset[str] = frozenset()
    """The settings that one place of the code, or a policy, has given."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        permanent: type[BaseException] | tuple[type[BaseException], ...] = (),
        raises: type[Exception] | tuple[type[Exception], ...] = (),
        undo: Step[..., Any] | None = None,
        hard: bool = False,
        memory: int | str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        total: Duration | None = None,
        total_force: bool | None = None,
        accept: Accept | None = None,
        cost: int | None = None,
        transaction: bool = False,
        breaker: Breaker | None = None,
        at_most_once: bool = False,
        keep_arguments: bool = False,
    ) -> None:
        self.function = plain_function(function, "step")
        self.name = name_of(self.function, name, "step")
        self.declared = _declared(retry, timeout, at_most_once, keep_arguments)
        self.definition = definition_of(self.function)
        self.routing = routing(
            f"{self}", None, queue=queue, priority=priority, total=total, total_force=total_force, accept=accept,
            cost=cost,
        )  # fmt: skip
        self.away = self.routing is not None
        self.transaction = joint(self, transaction, hard)
        self._depend(breaker)
        self.permanent = permanent
        self.retry = _retry(_DEFAULT_RETRY if retry is None else retry, permanent)
        self._once(at_most_once, retry)
        self.own_retry = self.retry
        self.raises = declared(raises, f"{self}") if raises != () else NOTHING
        self.timeout = seconds("timeout", timeout, f"{self}") or self._usual_timeout()
        self.hard = confinement(self, self.function, hard, memory)
        self.is_async = iscoroutinefunction(self.function) and self.hard is None
        self.shape = CallShape(self.function)
        self.undo = undo_of(self, undo)
        self._keep(keep_arguments)
        update_wrapper(self, self.function)
        self.on_parent_end: OnParentEnd = "cancel"
        note(self)

    def options(
        self,
        *,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        queue: str | None = None,
        priority: int | None = None,
        label: str | None = None,
        total: Duration | None = None,
        total_force: bool | None = None,
        accept: Accept | None = None,
        share: str | None = None,
        cost: int | None = None,
        delay: Duration | None = None,
        breaker: Breaker | None = None,
        at_most_once: bool | None = None,
        keep_arguments: bool | None = None,
    ) -> Step[P, R]:
        """The same step with other settings for one place in a workflow; raises DefinitionError.

        ``queue`` is where it waits, ``label`` what its worker must have, ``priority`` is from 0 (first) to 9, and
        ``total`` is seconds from the asking to the end, waiting included: with ``total_force=False`` a running attempt
        may still finish after that. ``share`` is on whose account it runs: the shares of a queue with limits take
        turns. ``cost`` is how much it takes of these limits. Before ``delay`` seconds no worker gets it.
        ``accept="first"`` takes the first answer of any attempt, also of one that was given up. ``breaker`` is that of
        the provider or shard which is asked at this place; a queued step has that of its definition, as it has the
        error classes of its retry. ``at_most_once`` and ``keep_arguments`` are as for :func:`step`. No ``retry`` tries
        the step's permanent errors again.
        """
        other = copy(self)
        given = {"retry": retry, "timeout": timeout, "at_most_once": at_most_once, "keep_arguments": keep_arguments}
        other.set_here = self.set_here | {name for name, value in given.items() if value is not None}
        if retry is not None:
            other.retry = _retry(retry, self.permanent)
        other.routing = routing(
            f"{self}", self.routing, queue=queue, priority=priority, label=label, total=total, total_force=total_force,
            accept=accept, share=share, cost=cost, delay=delay,
        )  # fmt: skip
        other.away = other.routing is not None
        other.timeout = seconds("timeout", timeout, f"{self}") or self._written_timeout() or other._usual_timeout()
        joint(other, self.transaction)
        if breaker is not None:
            if other.away:
                raise DefinitionError(f"{self} is queued: write breaker= at its definition, which its worker reads.")
            other._depend(breaker)
        other._once(self.at_most_once if at_most_once is None else at_most_once, retry)
        other._keep(self.keep_arguments if keep_arguments is None else keep_arguments)
        check_classes(other, self.own_retry)
        return other

    def _usual_timeout(self) -> float:
        """The seconds that an attempt may take if nobody has said so: as short as suits what waits for it."""
        if self.transaction:
            return TRANSACTION_TIMEOUT_SECONDS
        return QUEUED_STEP_TIMEOUT_SECONDS if self.away else STEP_TIMEOUT_SECONDS

    def _written_timeout(self) -> float | None:
        """The seconds that an attempt may take as the code, or a policy, says; None if nobody has said so."""
        return self.timeout if "timeout" in self.declared or "timeout" in self.set_here else None

    def _depend(self, breaker: Breaker | None) -> None:
        if breaker is not None and not isinstance(breaker, Breaker):
            raise DefinitionError(
                f'{self} has breaker={shown(breaker)}. Write bank = Breaker("bank"), then breaker=bank.'
            )
        self.breaker = breaker

    def by_policy(self, given: Mapping[str, Any]) -> Step[P, R]:
        """The same step with what a policy has given: its ``timeout``, its retry and all else that it may set.

        A step with a transaction has no need to run at most once: it leaves no effect without its result. One that
        takes the first answer of any attempt has only one then.
        """
        other = copy(self)
        numbers = {name: value for name, value in given.items() if name in OF_RETRY}
        if numbers:
            other.retry = fitting(self.retry, numbers)
        other.timeout = float(given.get("timeout", self.timeout))
        once = given.get("at_most_once", self.at_most_once) and not self.transaction
        if once and other.routing is not None:
            other.routing = structs.replace(other.routing, accept="current")
        other._once(once)
        other.revival_delay = given.get("revival_delay", self.revival_delay)
        other._keep(given.get("keep_arguments", self.keep_arguments))
        other.set_here = self.set_here | set(map(setting_of, given))
        return other

    def here(self, numbers: dict[str, Any] | None, timeout: float | None, once: bool | None = None) -> Step[P, R]:
        """The same step, run where it is asked for: what a worker of its queue does."""
        other = copy(self)
        other.routing, other.away, other.undo = None, False, None  # the process that asked for it owes its undo
        other.retry = with_numbers(self.retry, numbers)
        other.timeout = timeout or self._written_timeout() or QUEUED_STEP_TIMEOUT_SECONDS
        other._once(self.at_most_once if once is None else once)
        other._keep(False)  # the row of the task has them
        return other

    def _once(self, at_most_once: Any, retry: Retry | None = None) -> None:
        """Have the step run at most once, with no retry, or as often as its retry says; raises DefinitionError."""
        self.at_most_once = lone(self, at_most_once, retry)
        self.prepared = self.away or self.transaction or self.at_most_once or self.breaker is not None
        if self.at_most_once:
            self.retry = _retry(Retry.NONE, self.permanent)

    def _keep(self, keep_arguments: Any) -> None:
        """Have the history keep the arguments, or not; raises DefinitionError."""
        if not isinstance(keep_arguments, bool):
            raise DefinitionError(f"{self} has keep_arguments={keep_arguments!r:.100}. Give True or False.")
        self.keep_arguments = keep_arguments
        self.plain = not (self.away or self.undo is not None or keep_arguments)

    @property
    def noun(self) -> str:
        """What people call it: a queued step is a task."""
        return "task" if self.away else "step"

    @property
    def lasting(self) -> bool:
        """Whether it is asked to end and awaited, not just dropped: its undo must not overtake it (rule 23)."""
        return self.away and self.undo is not None

    def process(self, id: bytes, ask: Ask[Any], parent: Process, key: str, now: int) -> Process:
        """The row of the queued step."""
        return task_process(self, id, ask, parent, key, now)

    def error(self, type: MessageType, failure: Failure) -> BaseException:
        """The error that the workflow gets for a queued step that did not complete."""
        return failure.as_step_error(self.name, self.raises)

    def failure(self, error: BaseException, attempts: int) -> Failure:
        """What is recorded of an attempt that failed with this error, the last of so many."""
        return Failure.of(error, attempts, self.raises)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Ask for the step and give its promise; outside of a workflow, call the function."""
        loop = turns.get(get_ident())
        if loop is not None:
            return loop.ask(self, args, kwargs)  # type: ignore[return-value]  # create_task() and gather() take it alike
        return self.function(*args, **kwargs)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<step {self.name}>"


@overload
def step(function: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
@overload
def step(function: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout: Duration | None = None,
    permanent: type[BaseException] | tuple[type[BaseException], ...] = (),
    raises: type[Exception] | tuple[type[Exception], ...] = (),
    undo: Step[..., Any] | None = None,
    hard: bool = False,
    memory: int | str | None = None,
    queue: str | None = None,
    priority: int | None = None,
    total: Duration | None = None,
    total_force: bool | None = None,
    accept: Accept | None = None,
    cost: int | None = None,
    transaction: bool = False,
    breaker: Breaker | None = None,
    at_most_once: bool = False,
    keep_arguments: bool = False,
) -> _Decorator: ...
def step(function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Mark a function as a step; an ordinary one runs in a thread.

    ``retry`` says when to try again (default: three attempts), ``timeout`` how many seconds an attempt may take from
    start to end (default: 3,600, of a queued step 60, of one with a transaction 10), and ``permanent`` which errors
    another attempt cannot cure. ``raises`` are the error classes that the workflow may catch by name; of any other
    error it gets a StepError. ``undo`` is the step that undoes it if the workflow, or the saga around it, fails or is
    cancelled. A ``hard`` step runs in a cell, a child OS process that is killed at its deadline; ``memory`` limits it
    (bytes, or a text like ``"512MiB"``; Linux only). With ``transaction`` what the step writes by
    ``attempt().connection`` and its result are committed together. ``breaker`` is the circuit breaker of what the step
    depends on: while that is open, no attempt is made. A step that runs ``at_most_once`` is never called twice,
    whatever happens: it has no retry, and if nobody knows whether it was done, the workflow gets a StepOutcomeUnknown.
    With ``keep_arguments`` its arguments stay in the history, for people: ``perdure trace`` shows them. Raises
    DefinitionError.
    """
    if function is not None:
        return Step(function)
    return lambda decorated: Step(decorated, **settings)


class _Decorator:
    """What ``@step(...)`` answers."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Step[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any: ...


def _declared(
    retry: Retry | None, timeout: Duration | None, at_most_once: bool, keep_arguments: bool
) -> frozenset[str]:
    """The settings that a definition gives, and does not leave as they are by default."""
    given = {
        "retry": retry is not None, "timeout": timeout is not None, "at_most_once": at_most_once,
        "keep_arguments": keep_arguments,
    }  # fmt: skip
    return frozenset(filter(given.get, given))


def _retry(retry: Retry, permanent: type[BaseException] | tuple[type[BaseException], ...]) -> Retry:
    """The retry of a step whose ``permanent`` errors are never retried; raises DefinitionError."""
    if not isinstance(retry, Retry):
        raise DefinitionError(f"retry={retry!r} is no Retry. Write retry=Retry(attempts=5).")
    if not permanent:
        return retry
    return replace(retry, never=(*as_classes(retry.never), *as_classes(permanent)))


def joint(step: Step[Any, Any], transaction: Any, hard: Any = False) -> bool:
    """Whether the step has a transaction of its own, as ``transaction`` asks for; raises DefinitionError."""
    if not isinstance(transaction, bool):
        raise DefinitionError(f"{step} has transaction={transaction!r:.100}. Write transaction=True, or leave it out.")
    if transaction and hard:
        raise DefinitionError(
            f"{step} is hard and has a transaction, but a cell has no connection to the store. Leave one of them out."
        )
    if transaction and step.away:
        raise DefinitionError(
            f"{step} is queued and has a transaction, but its result goes to a process that another worker holds. "
            "Leave one of them out, or queue a step before it."
        )
    return transaction


def lone(step: Step[Any, Any], at_most_once: Any, retry: Retry | None) -> bool:
    """Whether the step runs at most once, as ``at_most_once`` asks for; raises DefinitionError."""
    if not isinstance(at_most_once, bool):
        raise DefinitionError(f"{step} has at_most_once={at_most_once!r:.100}. Give True or False.")
    if not at_most_once:
        return False
    if retry is not None and retry.attempts > 1:
        raise DefinitionError(
            f"{step} runs at most once and has a retry with {retry.attempts} attempts. Leave one of them out. What is "
            "safe to try again, like a connection that was refused, can be tried again inside the step."
        )
    if step.transaction:
        raise DefinitionError(
            f"{step} runs at most once and has a transaction, but that one leaves no effect without its result. "
            "Leave at_most_once out: it counts once however often it is tried."
        )
    if step.routing is not None and step.routing.accept == "first":
        raise DefinitionError(
            f"{step} runs at most once and has accept='first', but there is only one attempt. Leave one of them out."
        )
    return True


def unfit(step: AskedStep, blocking: bool | None) -> str | None:
    """Why the step cannot have a transaction of the store, whose calls are ``blocking`` or awaited; None: it can.

    A store that shares no transactions says None.
    """
    if blocking is None:
        return f"{step} has a transaction, which this store cannot share. Use PostgreSQL, or SQLite with a file."
    if blocking is not step.is_async:
        return None
    if not blocking:
        return (
            f"{step} has a transaction and is an ordinary function, but on PostgreSQL it gets a connection of asyncpg, "
            "whose calls are awaited. Write it as an `async def`."
        )
    return (
        f"{step} has a transaction and is an `async def`, but on SQLite it gets one of sqlite3, whose calls "
        "block. Write it as an ordinary `def`, which runs in a thread."
    )
