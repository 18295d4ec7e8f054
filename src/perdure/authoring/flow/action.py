"""The actions of a flow: what it does when it enters a state, and what it asks of outside systems.

An action does its work in the flow and says what has happened. A request is sent to a system whose answer comes later,
as a message: until then it may be sent again.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping
from copy import copy
from dataclasses import fields
from types import FunctionType
from typing import Any, Self, TypeAlias, overload

from perdure.authoring.definitions import seconds
from perdure.authoring.flow.answer import Answer, AnswerCodes, Codes, Interim
from perdure.authoring.flow.event import FlowEvent, Happened
from perdure.authoring.flow.state import State, Timed
from perdure.clock import Duration
from perdure.errors import DefinitionError
from perdure.kernel.policy import fitting
from perdure.kernel.retry import PLAIN, Retry

ActionResult: TypeAlias = Happened | Answer | None
"""What an action may return."""
Errors: TypeAlias = Mapping[type[Exception], FlowEvent[...]]
Body: TypeAlias = Callable[[Any], Coroutine[Any, Any, ActionResult]]
Send: TypeAlias = Callable[[Any, str], Coroutine[Any, Any, None]]

OF_REQUEST = ("attempts", "first", "factor", "cap", "jitter", "total", "backoffs", "offsets")
"""The properties of a retry, or of a policy, that say when a request is sent again; the other ones are for steps."""
_OF_STEPS = tuple(field.name for field in fields(Retry) if field.name not in OF_REQUEST)


class Action(Timed):
    """A method marked with :func:`action`, as its class shows it. On an object it is the plain method.

    ``mentions`` are the names that its code looks up in ``self``: among them those of the events that it returns.
    ``declared`` are the settings that its definition has, ``set_here`` those that one state has, and ``at_most_once``
    says that its steps never run twice; ``revival_delay`` is as for a state. With ``keep_arguments`` its steps keep
    their arguments.
    """

    mark = "action"
    parameters = 1
    declared: frozenset[str] = frozenset()
    set_here: frozenset[str] = frozenset()
    at_most_once = False
    revival_delay: float | None = None
    keep_arguments = False

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        answers: Codes | None = None,
        default: FlowEvent[...] | Interim | None = None,
        errors: Errors | None = None,
        timeout: Duration | None = None,
    ) -> None:
        if not isinstance(function, FunctionType) or not inspect.iscoroutinefunction(function):
            raise DefinitionError(f"@flow.{self.mark} marks methods that are `async def`, not {function!r:.100}.")
        self.function, self.name = function, function.__name__
        where = function.__qualname__
        if len(inspect.signature(function).parameters) != self.parameters:
            takes = "self alone" if self.parameters == 1 else "self and the id of the request"
            raise DefinitionError(f"{where} takes {inspect.signature(function)}. A flow.{self.mark} takes {takes}.")
        self.answers = AnswerCodes(where, answers or {}, default)
        self.errors = dict(errors or {})
        self.expected = tuple(self.errors)
        self.mentions = frozenset(_own_names(function))
        for error, event in self.errors.items():
            if not (isinstance(error, type) and issubclass(error, Exception) and isinstance(event, FlowEvent)):
                raise DefinitionError(f"{where} has errors={{{error!r}: {event!r}}}. Give error classes with events.")
        self.timeout = seconds("timeout", timeout, where)
        if timeout is not None:
            self.declared = frozenset({"timeout"})

    def __get__(self, instance: Any, owner: type) -> Any:
        """The action itself on the class, the bound method on an object."""
        return self if instance is None else self.function.__get__(instance, owner)

    def of_error(self, error: Exception) -> FlowEvent[...]:
        """The event to which an expected error leads."""
        return next(event for kind, event in self.errors.items() if isinstance(error, kind))

    def done_in(self, state: State, revival_delay: float | None) -> Self:
        """The same as it is done in a state; ``revival_delay`` is that of the flow."""
        given: dict[str, Any] = {"at_most_once": True} if state.at_most_once else {}
        delay = revival_delay if state.revival_delay is None else state.revival_delay
        if delay is not None:
            given["revival_delay"] = delay
        return self.by_policy(given)

    def by_policy(self, given: Mapping[str, Any]) -> Self:
        """The same with what a policy has given: its ``timeout``, if it has one, and how its steps run."""
        if not given:
            return self
        other = copy(self)
        if self.timeout is not None:
            other.timeout = float(given.get("timeout", self.timeout))
        other.at_most_once = self.at_most_once or given.get("at_most_once", False)
        other.revival_delay = given.get("revival_delay", self.revival_delay)
        other.keep_arguments = given.get("keep_arguments", self.keep_arguments)
        return other


class FlowRequest(Action):
    """A method marked with :func:`request`, as its class shows it."""

    mark = "request"
    parameters = 2
    timeout: float

    def __init__(self, function: Callable[..., Any], *, retry: Retry | None = None, **settings: Any) -> None:
        super().__init__(function, **settings)
        where = function.__qualname__
        if not self.answers:
            raise DefinitionError(f'{where} knows no answer. Add answers={{"ACCP": accepted}}, or default=answered.')
        if settings.get("timeout") is None:
            raise DefinitionError(
                f"{where} has no timeout, so a lost answer would be awaited for ever. Add timeout=60."
            )
        self._retries(Retry.NONE if retry is None else retry)
        if retry is not None:
            self.declared |= {"retry"}

    def options(self, *, retry: Retry | None = None, timeout: Duration | None = None) -> FlowRequest:
        """The same request with settings for the state that its row leads to; raises DefinitionError."""
        other = copy(self)
        if retry is not None:
            other._retries(retry)
        other.timeout = seconds("timeout", timeout, self.function.__qualname__) or self.timeout
        given = {"retry": retry, "timeout": timeout}
        other.set_here = self.set_here | {name for name, value in given.items() if value is not None}
        return other

    def by_policy(self, given: Mapping[str, Any]) -> Self:
        """The same with what a policy has given, also when it is sent again: never, if it runs at most once."""
        other = super().by_policy(given)
        numbers = {name: value for name, value in given.items() if name in OF_REQUEST}
        if other.at_most_once:
            other.retry = Retry.NONE
        elif numbers:
            other.retry = fitting(self.retry, numbers)
        return other

    def _retries(self, retry: Any) -> None:
        if not isinstance(retry, Retry):
            raise DefinitionError(
                f"{self.function.__qualname__} has retry={retry!r:.100}. Write retry=Retry(attempts=3)."
            )
        for name in _OF_STEPS:
            if getattr(retry, name) != getattr(PLAIN, name):
                raise DefinitionError(
                    f"{self.function.__qualname__} has Retry({name}=...), which only a step can have. Leave it out: "
                    f"the retry of a request may have {', '.join(OF_REQUEST)}."
                )
        self.retry = retry


def _own_names(function: FunctionType) -> Iterator[str]:
    """The names that the code of a method looks up in its object."""
    own, looked_up = function.__code__.co_varnames[0], None
    for one in dis.get_instructions(function):
        if one.opname in ("LOAD_ATTR", "LOAD_METHOD") and looked_up == own:
            yield str(one.argval)
        looked_up = None
        if one.opname.startswith(("LOAD_FAST", "LOAD_DEREF")):  # Python 3.13 loads two variables at once
            looked_up = one.argval[-1] if isinstance(one.argval, tuple) else one.argval


@overload
def action(function: Body, /) -> Action: ...
@overload
def action(
    *,
    answers: Codes | None = None,
    default: FlowEvent[...] | Interim | None = None,
    errors: Errors | None = None,
    timeout: Duration | None = None,
) -> Callable[[Body], Action]: ...
def action(function: Any = None, /, **settings: Any) -> Any:
    """Mark what the flow does by itself: an ``async def`` that may await steps and children.

    It says what has happened by returning an event, ``return self.cleared("C-1")``, or a :class:`flow.Answer`, whose
    code leads to an event by ``answers``; ``default`` is for all other codes. None is nothing. ``errors`` are expected
    error classes, each with its event; any other error breaks the flow until a person has put right what is wrong.
    After ``timeout`` seconds it is cancelled, and the event ``name.timed_out`` comes. Events from outside wait until an
    action has ended. Raises DefinitionError.
    """
    return Action(function) if function is not None else lambda marked: Action(marked, **settings)


def request(
    *,
    timeout: Duration,
    answers: Codes | None = None,
    default: FlowEvent[...] | Interim | None = None,
    errors: Errors | None = None,
    retry: Retry | None = None,
) -> Callable[[Send], FlowRequest]:
    """Mark what the flow asks of an outside system: an ``async def`` that sends the question by a step.

    It gets the ``id`` of the request, which is the same each time it is sent: hand it over, as the key by which the
    other side knows a question again, and by which it answers: ``handle.signal(Transfer.answer, id, "ACCP")``.
    ``answers`` lead by their code to an event, and ``default`` is for all other codes. Until an answer has completed it
    it is sent again as ``retry`` says (attempts, total, delays and jitter alone; default: it is sent once), also when
    the flow has come to another state meanwhile. ``timeout`` seconds after it was first sent it is given up, and the
    event ``name.timed_out`` comes. A step that fails to send it counts as sent and not answered; ``errors`` are errors
    that give it up, each with its event. Give that step ``retry=Retry.NONE``: else its retries come on top. Raises
    DefinitionError.
    """
    settings = {"answers": answers, "default": default, "errors": errors, "timeout": timeout}
    return lambda marked: FlowRequest(marked, retry=retry, **settings)
