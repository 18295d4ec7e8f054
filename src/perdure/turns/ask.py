"""An ask: a step that a turn has asked for; what is to be run, and the future that the workflow awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Signature
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from perdure.errors import WorkflowMisuse
from perdure.limits import PAYLOAD_DEPTH

if TYPE_CHECKING:
    from perdure.kernel.breaker import Breaker
    from perdure.kernel.call_shape import CallShape
    from perdure.kernel.declared_error import Declared
    from perdure.kernel.failure import Failure
    from perdure.kernel.message import MessageType
    from perdure.kernel.process import Process
    from perdure.kernel.retry import Retry

R = TypeVar("R")

PROMISED_VALUES = 100_000
"""At most so many values in the arguments of one call are searched for promises."""

OnParentEnd: TypeAlias = Literal["cancel", "terminate", "abandon"]
"""What becomes of a child that still runs when its parent ends: it is asked to end, is ended at once, or lives on."""


@runtime_checkable
class Askable(Protocol):
    """What code may ask for: a step, to be run here or in a queue, or a child.

    ``away`` says that it runs as a process of its own, ``lasting`` that it is asked to end and awaited, not just
    dropped, if the code cancels it. ``keep_arguments`` has the history keep the arguments. ``plain`` says that there is
    nothing to do but to run it here: no undo is owed, and no arguments are kept.
    """

    name: str
    shape: CallShape
    undo: Undo | None
    on_parent_end: OnParentEnd

    @property
    def noun(self) -> str:
        """What people call it."""

    @property
    def away(self) -> bool:
        """Whether it is a process of its own."""

    @property
    def lasting(self) -> bool:
        """Whether it is asked to end and awaited."""

    @property
    def keep_arguments(self) -> bool:
        """Whether the history keeps its arguments."""

    @property
    def plain(self) -> bool:
        """Whether there is nothing to do but to run it here."""

    @property
    def raises(self) -> Declared:
        """The error classes that it declares."""

    def process(self, id: bytes, ask: Ask[Any], parent: Process, key: str, now: int) -> Process:
        """The row of that process."""

    def error(self, type: MessageType, failure: Failure) -> BaseException:
        """The error that the code gets if it did not complete."""


class AskedStep(Askable, Protocol):
    """A step as its worker runs it: the function, how it is called, how long it may take, when it is tried again.

    ``hard`` is the isolation of a step that runs in a child OS process, ``transaction`` says that its result is
    committed together with its effect, ``at_most_once`` that its beginning is written first, ``revival_delay`` is how
    many seconds after the loss of its worker it begins again (None: at once; 0: not by itself), ``breaker`` is that of
    what it depends on. ``prepared`` says that something comes before its function is called: one of these three, or a
    queue.
    """

    is_async: bool
    hard: Any
    timeout: float
    retry: Retry
    transaction: bool
    breaker: Breaker | None
    at_most_once: bool
    revival_delay: float | None
    prepared: bool

    @property
    def function(self) -> Callable[..., Any]:
        """The function that is called."""

    def failure(self, error: BaseException, attempts: int) -> Failure:
        """An error of an attempt as it is recorded."""

    def __hash__(self) -> int: ...


RESULT = "result"
"""The parameter of an undo that gets the result of the step to be undone."""


@dataclass(frozen=True, slots=True)
class Undo:
    """What undoes the step or child ``of``: a ``step``, which gets the arguments of ``of`` that it has parameters for.

    ``wants_result`` says that it also has a parameter ``result``: the result of ``of``, or None if that is unknown.
    """

    step: AskedStep
    of: Askable
    names: tuple[str, ...]
    wants_result: bool
    takes: Signature

    def arguments(self, call: bytes, result: bytes | None) -> dict[str, Any]:
        """The arguments of the undo, from the payloads of the step's call and result; raises PayloadError."""
        args, kwargs = self.of.shape.decode(call)
        bound = self.takes.bind(*args, **kwargs)
        bound.apply_defaults()
        given = {name: bound.arguments[name] for name in self.names}
        if self.wants_result:
            given[RESULT] = None if result is None else self.of.shape.decode_result(result)
        return given


class Asker(Protocol):
    """The loop of an ask, as the ask itself uses it."""

    saga: Any

    def put(self, ask: Ask[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Ask for a step whose promised arguments are known now."""

    def take_back(self, ask: Ask[Any]) -> None:
        """Note that the code has cancelled an ask."""

    def ask_to_end(self, ask: Ask[Any]) -> bool:
        """Ask a child to end; False if there is no child to ask."""


class Ask(asyncio.Future[R]):
    """One call of a step inside a turn. It may be awaited, or passed un-awaited as an argument of another step.

    It has the face of a task: :meth:`create_task` of the loop answers it as it is.

    ``place`` and ``name`` say which call it is, together they are its ``slot``. ``raw`` is the payload of the arguments
    and ``digest`` its short name.
    ``raw`` is empty while a promise among the arguments is unresolved: the step is asked for once all are resolved.
    """

    __slots__ = ("args", "digest", "kwargs", "name", "number", "place", "raw", "slot", "step", "title")

    number: int
    place: str
    name: str
    slot: tuple[str, str]
    step: AskedStep
    raw: bytes
    digest: bytes
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    title: str

    @property
    def asked(self) -> Askable:
        """What was asked for, which need not be a step that is run here."""
        return self.step

    @property
    def future(self) -> Ask[R]:
        """What the workflow awaits: the ask itself."""
        return self

    @property
    def undoes(self) -> str | None:
        """The idempotency key of the step that this ask undoes, if it is an undo."""
        return None

    def __hash__(self) -> int:
        return self.number

    def get_name(self) -> str:
        """The name that it was given as a task; without one, the step's name and the place of the call."""
        return getattr(self, "title", f"{self.name}:{self.place}")

    def set_name(self, value: object) -> None:
        """Name it, as a task is named."""
        self.title = str(value)

    def cancelling(self) -> int:
        """How many requests to cancel are pending: none, for each is carried out at once."""
        return 0

    def uncancel(self) -> int:
        """How many requests to cancel are left when one is taken back: none."""
        return 0

    def cancel(self, msg: Any | None = None) -> bool:
        """Take the ask back: the step is not started, or is cancelled if it runs. A child is asked to end first."""
        if self.raw and self.step.lasting and not self.done() and turn_loop(self).ask_to_end(self):
            return True
        if not super().cancel(msg):
            return False
        if self.raw:
            turn_loop(self).take_back(self)
        return True

    def set_result(self, result: R, /) -> None:
        """Refused: only the recorded result of the step counts."""
        raise WorkflowMisuse(f"the result of step {self.name!r} comes from running it. Do not set it by hand.")

    def set_exception(self, exception: Any, /) -> None:
        """Refused: only the recorded failure of the step counts."""
        raise WorkflowMisuse(f"the failure of step {self.name!r} comes from running it. Do not set it by hand.")


def turn_loop(future: asyncio.Future[Any]) -> Asker:
    """The loop that the future belongs to."""
    return future.get_loop()  # type: ignore[return-value]


resolve: Callable[[Ask[Any], Any], None] = asyncio.Future.set_result
"""Give an ask its recorded result."""

fail: Callable[[Ask[Any], BaseException], None] = asyncio.Future.set_exception
"""Give an ask its recorded failure."""


def promised(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any], list[Ask[Any]]]:
    """The arguments of a call as they are now, and the asks among them, also those in lists, tuples and dicts."""
    waits: list[Ask[Any]] = []

    def note(ask: Ask[Any]) -> Ask[Any]:
        waits.append(ask)
        return ask

    now: tuple[list[Any], dict[str, Any]] = _replaced((list(args), dict(kwargs)), note, [PROMISED_VALUES])
    return *now, waits


def _replaced(value: Any, instead: Callable[[Ask[Any]], Any], left: list[int], depth: int = PAYLOAD_DEPTH) -> Any:
    """A value with every ask in it replaced; what is circular, or of more than ``left`` values, stays as it is."""
    if type(value) is Ask:
        return instead(value)
    left[0] -= 1
    if depth == 0 or left[0] < 0:
        return value
    if type(value) is list:
        return [_replaced(one, instead, left, depth - 1) for one in value]
    if type(value) is tuple:
        return tuple(_replaced(one, instead, left, depth - 1) for one in value)
    if type(value) is dict:
        return {name: _replaced(one, instead, left, depth - 1) for name, one in value.items()}
    return value


def when_resolved(ask: Ask[Any], waits: list[Ask[Any]]) -> None:
    """Make the ask once every promise among its arguments is resolved; the first promise that fails, fails it too."""

    def resolved(promise: asyncio.Future[Any]) -> None:
        if ask.done() or ask.raw:
            return
        if promise.cancelled():
            ask.cancel()
        elif (error := promise.exception()) is not None:
            fail(ask, error)
        elif all(wait.done() for wait in waits):
            substitute(ask)

    for promise in waits:
        if promise.done():
            resolved(promise)
        else:
            promise.add_done_callback(resolved)


def undoing(loop: Asker) -> bool:
    """Whether the undoing of the whole process has begun: then nothing new begins."""
    return loop.saga is not None and loop.saga.cause is not None


def substitute(ask: Ask[Any]) -> None:
    """Put the promised values into the arguments and make the ask; an unfit value fails it.

    Once the process is being undone the ask is cancelled instead: its undo would be owed to what is undone already.
    """
    if undoing(turn_loop(ask)):
        asyncio.Future.cancel(ask)
        return
    args, kwargs = _replaced((ask.args, ask.kwargs), asyncio.Future.result, [PROMISED_VALUES])
    try:
        turn_loop(ask).put(ask, args, kwargs)
    except ValueError as error:
        fail(ask, error)
