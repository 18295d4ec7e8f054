"""The turn loop: a small deterministic event loop that gives a process's code its turns.

What would be I/O elsewhere is an output here: steps become asks, sleeping becomes timers. What comes back is delivered
in the recorded order, so replay arrives at the same place. Nothing here blocks, and nothing reads a clock.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from asyncio import AbstractEventLoop, _get_running_loop, _set_running_loop
from asyncio.tasks import _enter_task, _leave_task
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import Context, copy_context
from itertools import repeat
from threading import get_ident
from typing import TYPE_CHECKING, Any, cast

from perdure.authoring import ending, wall
from perdure.authoring.ask import Ask, fail, promises, resolve, substitute, when_resolved
from perdure.authoring.closed_loop import ClosedLoop
from perdure.authoring.mailbox import Mailbox
from perdure.authoring.timer import Timer, Timers
from perdure.authoring.turn_task import TurnFuture, TurnTask
from perdure.errors import HistoryMisfit, PayloadError, WorkflowMisuse
from perdure.kernel import payload as payloads
from perdure.kernel.failure import Failure
from perdure.kernel.message import MessageType
from perdure.limits import TURN_CALLS

if TYPE_CHECKING:
    from random import Random

    from perdure.authoring.step import Step

__all__ = ["Ask", "TurnLoop", "current_turn", "turn_running"]

_Before = tuple[AbstractEventLoop | None, "asyncio.Task[Any] | None", Any, bool]

_turns: dict[int, TurnLoop] = {}

if sys.version_info >= (3, 12):
    _current_task = asyncio.current_task
else:
    _current_task = asyncio.tasks._current_tasks.get  # type: ignore[attr-defined]

_new_task = TurnTask.__new__
_init_task = TurnTask.__init__


def current_turn(thread: int | None = None) -> TurnLoop | None:
    """The loop whose turn is running in a thread (its ident; by default the calling one), or None."""
    return _turns.get(get_ident() if thread is None else thread)


def turn_running(thread: int) -> bytes | None:
    """The id of the process whose turn is running in that thread, or None; readable from every thread."""
    loop = _turns.get(thread)
    return None if loop is None else loop.process_id


class Call(list[Any]):
    """Something to be called in this turn; it can be cancelled, like :class:`asyncio.Handle`."""

    __slots__ = ()

    def cancel(self) -> None:
        """Let it not be called."""
        self[:] = [_nothing, (), Context()]

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self[0] is _nothing


def _nothing() -> None:
    return None


class TurnLoop(ClosedLoop):
    """The event loop of one process in memory: ready queue first in first out, timers, asks, no I/O.

    ``asks`` are the steps newly asked for and ``dropped`` those that the code took back; whoever runs the turns takes
    them and clears the lists. ``open`` holds every ask not yet answered, by (name, place). ``state`` is what the code
    last gave to ``set_state``, as a payload.
    """

    __slots__ = (
        "_agens", "_ready", "_rng", "_root", "_tasks", "_watch", "asks", "dead", "dropped", "eager", "finished",
        "mailboxes", "now", "numbers", "open", "process_id", "seed", "state", "timers", "troubles",
    )  # fmt: skip

    get_debug = bool  # a callable that answers False faster than a function would

    def __init__(self, process_id: bytes, seed: bytes) -> None:
        self.process_id = process_id
        self.seed = seed
        self.now = 0
        self.asks: list[Ask[Any]] = []
        self.dropped: list[Ask[Any]] = []
        self.open: dict[tuple[str, str], Ask[Any]] = {}
        self.timers = Timers()
        self.mailboxes: dict[str, Mailbox] = {}
        self.state: bytes | None = None
        self.finished = False
        self.dead = False
        self.eager = False
        # Creation numbers are hashes: low bits count, high bits keep the hashes of different processes apart.
        self.numbers = int.from_bytes(process_id[-6:], "big") << 12
        self.troubles: list[dict[str, Any]] = []
        self._ready: deque[Any] = deque()
        self._root: TurnTask | None = None
        self._tasks: list[TurnTask] = []
        self._watch = 8
        self._agens: list[Any] = []
        self._rng: Random | None = None

    # -- the life of a process in memory -----------------------------------------------------------------------------

    def begin(
        self,
        function: Callable[..., Coroutine[Any, Any, Any]],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Make the root task of ``function(*args, **kwargs)``; runs nothing yet."""
        wall.build()
        self._root = self._task(function(*args, **(kwargs or {})), "", "workflow", Context())

    def run(self, now: int) -> None:
        """Run one turn at the instant ``now`` (microseconds since 1970), until nothing is ready any more."""
        if self.dead or self._root is None:
            raise RuntimeError("a turn cannot run before begin() or after evict()")
        self.now = now
        before = self._enter()
        try:
            self._drain()
            while self._root.done() and not self.finished and ending.wind_up(self):
                self._drain()
        finally:
            self._leave(before)

    def _enter(self) -> _Before:
        """Become the running loop of this thread; answers what was before."""
        outer = _get_running_loop()
        if type(outer) is TurnLoop:
            raise RuntimeError("a turn cannot run inside a turn")
        task = None if outer is None else asyncio.current_task(outer)
        if task is not None:
            _leave_task(cast(AbstractEventLoop, outer), task)
        before = outer, task, sys.get_asyncgen_hooks(), gc.isenabled()
        sys.set_asyncgen_hooks(_agen_begun, _agen_dropped)
        gc.disable()  # the collector never schedules into a turn (rule 20)
        _turns[get_ident()] = self
        _set_running_loop(cast(AbstractEventLoop, self))
        return before

    def _leave(self, before: _Before) -> None:
        outer, task, hooks, collecting = before
        _set_running_loop(outer)
        _turns.pop(get_ident(), None)
        if collecting:
            gc.enable()
        sys.set_asyncgen_hooks(*hooks)
        if task is not None:
            _enter_task(cast(AbstractEventLoop, outer), task)

    def _drain(self) -> None:
        ready = self._ready
        popleft = ready.popleft
        for _ in repeat(None, TURN_CALLS):
            if not ready:
                return
            callback, args, context = popleft()
            try:
                context.run(callback, *args)
            except (SystemExit, KeyboardInterrupt) as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
            except BaseException as error:
                self.call_exception_handler({"message": f"error in {callback!r}", "exception": error})
        raise WorkflowMisuse(
            f"a turn made {TURN_CALLS:,} calls without waiting for anything. "
            "Wait for a step, a timer or a signal instead of turning in a circle."
        )

    @property
    def chance(self) -> Random:
        """The process's own source of chance, made from its seed."""
        if self._rng is None:
            self._rng = wall.chance(self.seed)
        return self._rng

    @property
    def cancelled(self) -> bool:
        """Whether the workflow ended by cancellation."""
        return self._root is not None and self._root.cancelled()

    def failure(self) -> BaseException | None:
        """The error that the workflow ended with, if it did."""
        root = self._root
        return None if root is None or not root.done() or root.cancelled() else root.exception()

    def result_payload(self) -> bytes:
        """The workflow's result as a payload; raises PayloadError if it cannot be one."""
        assert self._root is not None
        return payloads.encode(self._root.result(), what="the result of the workflow")

    def evict(self) -> None:
        """Drop the process from memory: its code ends here, and nothing that its clean-up does counts (rule 20)."""
        if not self.dead:
            self.dead = True
            before = self._enter()
            try:
                ending.evict(self)
            finally:
                self._leave(before)

    # -- what comes in ---------------------------------------------------------------------------------------------------

    def step_done(self, place: str, name: str, digest: bytes | None, payload: bytes | None) -> None:
        """Deliver a step's result; raises HistoryMisfit if the code asked for no such step, or with other arguments."""
        ask = self.open.pop((name, place), None)
        if ask is None or (digest is not None and digest != ask.digest):
            raise self._misfit("result", place, name, ask)
        try:
            value = payloads.decode(payload or b"null", ask.step.shape.result_type)
        except PayloadError as error:
            raise HistoryMisfit(f"a result of step {name!r} at {place}", f"cannot read it: {error}") from error
        resolve(ask, value)

    def step_failed(self, place: str, name: str, digest: bytes | None, payload: bytes | None) -> None:
        """Deliver a step's final failure; raises HistoryMisfit as :meth:`step_done` does."""
        ask = self.open.pop((name, place), None)
        if ask is None or (digest is not None and digest != ask.digest):
            raise self._misfit("failure", place, name, ask)
        fail(ask, Failure.decode(payload or b"{}").as_step_error(name))

    def timer_fired(self, place: str) -> None:
        """Deliver a timer; raises HistoryMisfit if none is open at that place."""
        timer = self.timers.fire(place)
        if timer is None or timer.callback is None:
            raise HistoryMisfit(f"a timer at place {place}", f"set {_listed('timer', self.timers.open)}")
        self._ready.append((timer.callback, timer.args, timer.context))
        timer.callback = None

    def message(self, type: MessageType, name: str, payload: bytes, number: int = 0) -> None:
        """Deliver a message: a signal goes to its mailbox, a cancel to the workflow's innermost await."""
        if type is MessageType.CANCEL:
            if self._root is not None:
                self._root.cancel()
        else:
            self.mailbox(name).put(payload)

    def _misfit(self, what: str, place: str, name: str, ask: Ask[Any] | None) -> HistoryMisfit:
        if ask is not None:
            shown = ask.raw[:200].decode(errors="replace")
            return HistoryMisfit(
                f"a {what} of step {name!r} at place {place} for other arguments", f"asked for it with {shown}"
            )
        asked = _listed("step", (f"{name} at {place}" for name, place in self.open))
        return HistoryMisfit(f"a {what} of step {name!r} at place {place}", f"asked there for {asked}")

    # -- what it waits for -------------------------------------------------------------------------------------------------

    def next_timer(self) -> tuple[int, str] | None:
        """Due time and place of the timer that fires first."""
        timer = self.timers.next()
        return None if timer is None else (timer.due, timer.place)

    def due_timers(self, now: int) -> list[tuple[int, str]]:
        """Due time and place of the timers due by ``now``, in firing order: due time, then creation."""
        return [(timer.due, timer.place) for timer in self.timers.due(now)] if self.timers.open else []

    def awaiting(self) -> str:
        """What the process waits for, for people, in at most 200 characters."""
        waits = dict.fromkeys(f"step {name}" for name, _ in self.open)
        waits.update(dict.fromkeys(f"signal {box.name}" for box in self.mailboxes.values() if box.awaited))
        if self.timers.open:
            waits["timer"] = None
        text = ", ".join(waits) or "nothing that a step, a timer or a signal could bring"
        return text if len(text) <= 200 else text[:199] + "…"

    # -- what steps and in-turn functions use ----------------------------------------------------------------------------------

    def ask(self, step: Step[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Ask[Any]:
        """Ask for a step from the place where the code is now; raises InvalidInput for unfit arguments."""
        ask: Ask[Any] = Ask(loop=cast(AbstractEventLoop, self))
        ask.step = step
        ask.name = step.name
        ask.place = self.place(step.name)
        ask.number = self.numbers = self.numbers + 1
        ask.raw = b""
        if Ask in map(type, args) or (kwargs and Ask in map(type, kwargs.values())):
            ask.args, ask.kwargs = args, kwargs
            waits = [promise for promise in promises(args, kwargs) if not promise.done() or promise.cancelled()
                     or promise.exception() is not None]  # fmt: skip
            if waits:
                when_resolved(ask, waits)
            else:
                substitute(ask)
        else:
            self.put(ask, args, kwargs)
        return ask

    def put(self, ask: Ask[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Ask for a step whose arguments are all known."""
        shape = ask.step.shape
        ask.raw, ask.args, ask.kwargs = shape.copy(args, kwargs)
        ask.digest = shape.digest(ask.raw)
        self.open[ask.name, ask.place] = ask
        self.asks.append(ask)

    def take_back(self, ask: Ask[Any]) -> None:
        """Note that the code has cancelled an ask."""
        if self.open.pop((ask.name, ask.place), None) is None:
            return
        if ask in self.asks:
            self.asks.remove(ask)
        else:
            self.dropped.append(ask)

    def place(self, name: str) -> str:
        """The next place of that name in the branch that runs now."""
        if self.dead:
            raise GeneratorExit
        task = _current_task(self) or self._root
        if type(task) is not TurnTask:
            raise WorkflowMisuse("a task was made by asyncio.Task(). Use asyncio.create_task() or a TaskGroup.")
        counts = task.counts
        counts[name] = count = counts.get(name, 0) + 1
        return f"{task.prefix}{count}"

    def mailbox(self, name: str) -> Mailbox:
        """The mailbox of the signals of that name."""
        box = self.mailboxes.get(name)
        if box is None:
            box = self.mailboxes[name] = Mailbox(name)
        return box

    # -- what asyncio uses -----------------------------------------------------------------------------------------------------

    def time(self) -> float:
        """The turn's time in seconds since 1970."""
        return self.now / 1_000_000

    def is_running(self) -> bool:
        """Whether a turn of this loop is running."""
        return _turns.get(get_ident()) is self

    def is_closed(self) -> bool:
        """Whether the process was dropped from memory."""
        return self.dead

    def set_debug(self, enabled: bool) -> None:
        """Ignored: a turn has no slow callbacks to report."""

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Call | None:
        """Call it in this turn, after what is ready already."""
        if self.dead:
            return None
        call = Call((callback, args, context or copy_context()))
        self._ready.append(call)
        return call

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Timer | Call | None:
        """Open a timer that fires ``delay`` seconds from the turn's time; not later than now means in this turn."""
        due = self.now + round(delay * 1_000_000)
        return self._timer(due if delay <= 0 or due > self.now else self.now + 1, callback, args, context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Timer | Call | None:
        """Open a timer that fires at ``when``, in seconds of :meth:`time`."""
        due = round(when * 1_000_000)
        return self._timer(due if when <= self.time() or due > self.now else self.now + 1, callback, args, context)

    def _timer(self, due: int, callback: Callable[..., Any], args: Any, context: Context | None) -> Timer | Call | None:
        if due <= self.now:
            return self.call_soon(callback, *args, context=context)
        place = self.place(" timer")
        self.numbers += 1
        timer = Timer(self.timers, due, self.numbers, place, callback, args, context or copy_context())
        self.timers.add(timer)
        return timer

    def create_future(self) -> TurnFuture:
        """A future whose hash is the number of its creation."""
        if self.dead:
            raise GeneratorExit
        future = TurnFuture(loop=cast(AbstractEventLoop, self))
        future.number = self.numbers = self.numbers + 1
        return future

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
        eager_start: bool | None = None,
    ) -> TurnTask:
        """A task with a branch of its own: the n-th that its creator has made."""
        parent = None if self.dead else _current_task(self) or self._root
        if type(parent) is not TurnTask:
            coro.close()
            raise GeneratorExit
        parent.children += 1
        branch = f"{parent.branch}.{parent.children}"
        eager = self.eager if eager_start is None else eager_start
        task = self._task(coro, branch, name or f"task{branch}", context, eager)
        if len(self._tasks) >= self._watch:
            self._tasks = [one for one in self._tasks if not one.done() or one._log_traceback]  # type: ignore[attr-defined]
            self._watch = 2 * len(self._tasks) + 8
        self._tasks.append(task)
        return task

    def _task(
        self, coro: Coroutine[Any, Any, Any], branch: str, name: str, context: Context | None, eager: bool = False
    ) -> TurnTask:
        task = _new_task(TurnTask)
        task.branch = branch
        task.prefix = f"{branch}:" if branch else ""
        task.children = 0
        task.told = False
        task.counts = {}
        task.number = self.numbers = self.numbers + 1
        if eager:
            _init_task(task, coro, loop=self, name=name, context=context, eager_start=True)  # type: ignore[call-arg]
        else:
            _init_task(task, coro, loop=cast(AbstractEventLoop, self), name=name, context=context)
        return task

    def set_task_factory(self, factory: Any) -> None:
        """Only asyncio's own factories are accepted: the default, and the eager one."""
        if factory is not None and factory is not getattr(asyncio, "eager_task_factory", None):
            raise WorkflowMisuse("a turn makes its own tasks. Use None or asyncio.eager_task_factory.")
        self.eager = factory is not None

    def get_task_factory(self) -> Any:
        """The factory last set."""
        return asyncio.eager_task_factory if self.eager else None  # type: ignore[attr-defined]

    def get_exception_handler(self) -> None:
        """None: errors that nobody retrieves are logged when the process ends."""

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """The same as :meth:`call_exception_handler`."""
        self.call_exception_handler(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep an error that nobody retrieves; it is logged at one fixed point, when the process ends (rule 20)."""
        if not self.dead:
            self.troubles.append(context)


def _listed(what: str, found: Any) -> str:
    names = list(found)
    if not names:
        return f"no {what}"
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{what} " + ", ".join(names[:5]) + more


def _agen_begun(agen: Any) -> None:
    loop = _get_running_loop()
    if type(loop) is TurnLoop:
        loop._agens.append(agen)


def _agen_dropped(agen: Any) -> None:
    """An unfinished generator was dropped: the collector schedules nothing into a turn (rule 20)."""
