"""A saga: steps that are undone, in reverse order, when an error or a cancellation leaves their scope.

An undo is owed from the moment in which its step is asked for, however that step ends. Everything here happens in
turns, from what is recorded, so a revived process goes on with its undoing where it was.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, Self

from perdure.errors import WorkflowMisuse
from perdure.kernel import payload
from perdure.kernel.failure import Failure
from perdure.kernel.undo import undo_place
from perdure.turns.ask import Ask, Undo, undoing
from perdure.turns.current import current_turn
from perdure.turns.interrupt import pressed
from perdure.turns.renewal import Broken, renewal_in

if TYPE_CHECKING:
    from types import TracebackType

    from perdure.turns.asking import AskingLoop

_scope: ContextVar[Saga | None] = ContextVar("perdure saga", default=None)


class Owed:
    """An undo that is owed. Its step was ``asked`` for in one turn and ``ended`` in another, by their numbers.

    It is ``begun`` once it is asked for, and ``paid`` when it has ended.
    """

    __slots__ = ("ask", "asked", "begun", "ended", "paid", "result", "saga", "undo", "void")

    def __init__(self, ask: Ask[Any], undo: Undo, saga: Saga, asked: int) -> None:
        self.ask = ask
        self.undo = undo
        self.saga = saga
        self.asked = asked
        self.ended = 0
        self.result: bytes | None = None  # as it was recorded: the code may change the value that it gets
        self.begun = False
        self.paid = False
        self.void = False

    @property
    def slot(self) -> tuple[str, str]:
        """The name and place of the undo's own step."""
        return self.undo.step.name, undo_place(self.ask.name, self.ask.place)

    @property
    def step(self) -> str:
        """Name and place of the step that is to be undone."""
        return f"{self.ask.name}:{self.ask.place}"

    def note_end(self, ask: asyncio.Future[Any]) -> None:
        """Note that the step has ended, or that the code has cancelled it."""
        assert self.saga.loop is not None
        self.ended = self.saga.loop.runs
        self.result = self.saga.whole.results.pop(self.ask.slot, None)
        self.saga.step_ended()


class UndoAsk(Ask[Any]):
    """The ask for an undo. ``unfit`` says why it cannot be called; ``spent`` is its last failure, if it gave up.

    A queued undo too first waits in its own process, until no attempt of a step runs there any more.
    """

    __slots__ = ("owed", "spent", "undoes", "unfit")

    owed: Owed
    undoes: str | None
    spent: Failure | None
    unfit: ValueError | None


class Saga:
    """One scope of undoing, made by :func:`saga`; the ``whole`` encloses all of them.

    If step B was asked for in the turn in which step A ended, or later, then B came after A and is undone before A.
    ``cause`` is set once the undoing has begun, and ``over`` once it has ended.
    """

    __slots__ = (
        "_before", "_left", "_queue", "_running", "_sequential", "_under_way", "_waiter", "cause", "closed", "loop",
        "outer", "over", "owed", "whole",
    )  # fmt: skip

    loop: AskingLoop | None
    whole: Whole

    def __init__(self, *, sequential: bool = False) -> None:
        self.loop = None
        self.outer: Saga | None = None
        self._before: Saga | None = None
        self.owed: list[Owed] = []
        self.cause: BaseException | None = None
        self.closed = False
        self.over = False
        self._sequential = sequential
        self._under_way = 0
        self._running = 0
        self._queue: list[Owed] = []
        self._left: list[Owed] = []
        self._waiter: asyncio.Future[None] | None = None

    # -- as a scope in the code ----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        loop = current_turn()
        if self.loop is not None:
            raise WorkflowMisuse("a saga is one scope and was entered before. Write `async with saga():` again.")
        if loop is not None:
            self.loop = loop
            self.whole = whole_of(loop)
            self._before = _scope.get()
            self.outer = _open(self._before or self.whole)
            _scope.set(self)
        return self

    async def __aexit__(
        self, type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.loop is None:
            return
        if self.loop.dead:
            self.owed.clear()  # breaks the cycles: else only the collector could free them
            return
        _scope.set(self._before)
        if error is None or isinstance(error, GeneratorExit) or pressed(error) or renewal_in(error) is not None:
            self._hand_over()
        else:
            await self._undo_all(self.loop, error)

    def _hand_over(self) -> None:
        """Hand the undos that are owed here over to the enclosing scope."""
        assert self.outer is not None
        self.closed = True
        outer = _open(self.outer)
        for owed in self.owed:
            owed.saga = outer
        outer.owed += self.owed
        outer._under_way += self._under_way

    async def _undo_all(self, loop: AskingLoop, error: BaseException) -> None:
        """Undo everything; a cancellation that comes meanwhile is raised when all is undone."""
        cancelled: asyncio.CancelledError | None = None
        self.unwind(error)
        while not self.over:
            self._waiter = loop.create_future()
            try:
                await self._waiter
            except asyncio.CancelledError as cancel:
                cancelled = cancel
                self.hurry()
        if cancelled is not None:
            raise cancelled

    # -- undoing -------------------------------------------------------------------------------------------------

    def add(self, owed: Owed) -> None:
        """Owe an undo in this scope from now on."""
        self.owed.append(owed)
        self._under_way += 1

    def unwind(self, cause: BaseException) -> None:
        """Begin to undo because of ``cause``: first wait for the steps under way; a cancellation cuts them short."""
        self.closed = True
        self.cause = cause
        if isinstance(cause, asyncio.CancelledError):
            self.hurry()
        self._begin()

    def hurry(self) -> None:
        """A cancel has come: if we are undoing, wait no longer for steps under way; the undoing itself goes on."""
        if self.cause is not None and self._under_way:
            for owed in self.owed:
                owed.ask.cancel()

    def step_ended(self) -> None:
        """Note that a step of this scope has ended."""
        self._under_way -= 1
        if self.cause is not None:
            self._begin()

    def _begin(self) -> None:
        """Ask for the first undos. Where a step was asked for meanwhile, those that have begun go on, each once."""
        if self._under_way:
            return
        owed = [one for one in self.owed if not (one.void or one.paid)]
        self._left = sorted(owed, key=lambda one: (one.asked, one.ask.number))
        self._queue = [one for one in self._left if not one.begun]
        if not self._sequential:
            self._queue.sort(key=lambda one: (one.ended, one.ask.number))
        self._go_on()

    def _go_on(self) -> None:
        """Ask for every undo that may run now: no step is under way, and all that came after its own are undone."""
        if self._under_way:
            return
        while self._left and self._left[-1].paid:
            self._left.pop()
        latest = self._left[-1].asked if self._left else 0
        while self._queue and self._queue[-1].ended > latest and not (self._sequential and self._running):
            self._running += 1
            self._ask(self._queue.pop())
        if not self._left:
            self.over = True
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)

    def _ask(self, owed: Owed) -> None:
        loop = self.loop
        assert loop is not None
        owed.begun = True
        undo: UndoAsk = UndoAsk(loop=loop)  # type: ignore[arg-type]
        undo.owed, undo.spent, undo.unfit, undo.undoes = owed, None, None, None
        step = undo.step = owed.undo.step
        undo.slot = undo.name, undo.place = owed.slot
        undo.number = loop.numbers = loop.numbers + 1
        try:
            given = owed.undo.arguments(owed.ask.raw, owed.result)
            undo.raw, undo.digest, undo.args, undo.kwargs = step.shape.copy((), given)
        except ValueError as error:  # a person must see it: its only attempt fails with it
            undo.raw, undo.args, undo.kwargs, undo.unfit = b"null", (), {}, error
            undo.digest = payload.digest(undo.raw)
        undo.add_done_callback(self._answered, context=Context())
        loop.ask_for_undo(undo)

    def _answered(self, undo: asyncio.Future[Any]) -> None:
        assert isinstance(undo, UndoAsk)
        self._running -= 1
        undo.owed.paid = True
        if undo.exception() is None:  # else a person has given it up
            self.whole.undone.append(undo.owed.step)
        self._go_on()

    def unpaid(self) -> list[str]:
        """The steps that this scope has still to undo, the last one first."""
        return [owed.step for owed in reversed(self._left) if not owed.paid]


class Whole(Saga):
    """The workflow as a whole.

    ``fresh`` are the undos that the history does not have yet, ``undone`` the steps undone so far, in any scope.
    ``results`` are the recorded ones of steps whose end this turn will hear, for undos that want them.
    """

    __slots__ = ("fresh", "results", "undone")

    def __init__(self, loop: AskingLoop) -> None:
        super().__init__()
        self.loop = loop
        self.whole = self
        self.fresh: list[Owed] = []
        self.results: dict[tuple[str, str], bytes] = {}
        self.undone: list[str] = []

    def free(self) -> None:
        """Break the cycles with what is owed, and with the loop: else only the collector could free them."""
        self.loop = None
        self.owed.clear()
        self.fresh.clear()
        del self.whole

    def keep_result(self, ask: Ask[Any], result: bytes | None) -> None:
        """Keep a step's result as it is recorded, if an undo is to get it."""
        undo = ask.step.undo
        if undo is not None and undo.wants_result:
            self.results[ask.slot] = result or b"null"

    def take_fresh(self) -> list[Owed]:
        """Take the undos that are newly owed; the caller records them."""
        fresh, self.fresh = self.fresh, []
        return fresh


def saga(*, sequential: bool = False) -> Saga:
    """A scope whose steps are undone if it does not come to its end, used in ``async with``.

    If an error or a cancellation leaves the scope, its steps that have an undo are undone before the code outside gets
    that error. If it ends well, its steps belong to the enclosing scope, and in the end to the workflow. Undos of steps
    that ran at the same time run at the same time too, unless the scope is ``sequential``. Outside of a workflow it
    does nothing.
    """
    return Saga(sequential=sequential)


def whole_of(loop: AskingLoop) -> Whole:
    """The scope that is the workflow as a whole."""
    if loop.saga is None:
        loop.saga = Whole(loop)
        loop.notes = True
    return loop.saga


def owe(loop: AskingLoop, ask: Ask[Any], undo: Undo) -> None:
    """Owe the undo of a step that is being asked for."""
    whole = whole_of(loop)
    if loop.machine is not None and _scope.get() is None:
        raise WorkflowMisuse(
            f"step {ask.name!r} has an undo, and a machine does not end with its method. "
            "Put `async with saga():` around it."
        )
    saga = _open(_scope.get() or whole)
    owed = Owed(ask, undo, saga, loop.runs)
    saga.add(owed)
    whole.fresh.append(owed)
    ask.add_done_callback(owed.note_end)


def forgive(loop: AskingLoop, *, ends: bool) -> None:
    """Owe nothing of a method of a machine that has ended: what its scopes have done stands, as after a replay.

    Only if the machine ``ends`` with this method, its error tells what the method has undone.
    """
    if loop.saga is not None:
        loop.saga.owed.clear()
        if not ends:
            loop.saga.undone.clear()


def free(loop: AskingLoop) -> None:
    """Forget what there is to undo, since the process leaves memory."""
    if loop.saga is not None:
        loop.saga.free()
        loop.saga = None


def never_began(loop: AskingLoop, ask: Ask[Any]) -> None:
    """Owe nothing for an ask that was cancelled in the turn that made it."""
    fresh = whole_of(loop).fresh
    for owed in fresh:
        if owed.ask is ask:
            owed.void = True
            fresh.remove(owed)
            return


def settled(loop: AskingLoop) -> bool:
    """Whether nothing is left to undo after the code has ended; if the code has failed, the undoing begins here."""
    whole = whole_of(loop)
    if whole.cause is None:
        cause = _cause(loop)
        if cause is None:
            return True
        whole.unwind(cause)
    return whole.over


def unheard(loop: AskingLoop, ask: Ask[Any]) -> bool:
    """Whether no code will hear of a step, which does not begin then: its process is undone, and it has no undo.

    An attempt that runs goes on to its end, for which the undoing waits.
    """
    return undoing(loop) and ask.step.undo is None and type(ask) is not UndoAsk


def _cause(loop: AskingLoop) -> BaseException | None:
    root = loop.root
    if root is None or root.cancelled():
        return asyncio.CancelledError()
    error = root.exception()
    if renewal_in(error) is not None or isinstance(error, Broken):
        return None
    if error is None:
        try:
            if loop.shape is not None:
                loop.shape.encode_result(root.result())
        except ValueError as unfit:
            return unfit
    return error


def _open(saga: Saga) -> Saga:
    while saga.closed and saga.outer is not None:
        saga = saga.outer
    return saga
