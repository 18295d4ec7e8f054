"""A bare loop: what asyncio needs of an event loop: ready queue, timers, futures and tasks, all deterministic.

It refuses everything that would reach beyond the turn. Its tasks know their branch and count what they ask for.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from itertools import repeat
from math import inf
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, Never

from perdure.errors import WorkflowMisuse
from perdure.limits import TURN_CALLS
from perdure.turns.ask import Ask
from perdure.turns.interrupt import pressed
from perdure.turns.timer import ScheduledCall, Timer, Timers

OUTSIDE = (
    "add_reader", "add_signal_handler", "add_writer", "call_soon_threadsafe", "close", "connect_accepted_socket",
    "connect_read_pipe", "connect_write_pipe", "create_connection", "create_datagram_endpoint", "create_server",
    "create_unix_connection", "create_unix_server", "getaddrinfo", "getnameinfo", "remove_reader",
    "remove_signal_handler", "remove_writer", "run_forever", "run_in_executor", "run_until_complete", "sendfile",
    "set_default_executor", "set_exception_handler", "shutdown_asyncgens", "shutdown_default_executor", "sock_accept",
    "sock_connect", "sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall",
    "sock_sendfile", "sock_sendto", "start_tls", "stop", "subprocess_exec", "subprocess_shell",
)  # fmt: skip
"""What other event loops offer and a turn refuses."""


def _refusal(name: str) -> Callable[..., Never]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Never:
        raise WorkflowMisuse(
            f"workflow code called {name}() of the event loop: I/O, threads and the outer loop belong in a step. "
            "Move this into a function marked @step."
        )

    refuse.__name__ = name
    refuse.__doc__ = "Refused: this belongs in a step."
    return refuse


if TYPE_CHECKING:
    _Base = object
else:
    _Base = asyncio.AbstractEventLoop


class SandboxLoop(_Base):
    """An event loop that refuses everything; the turn loop adds what a turn may do."""


for _name in OUTSIDE:
    setattr(SandboxLoop, _name, _refusal(_name))


class TurnTask(asyncio.Task[Any]):
    """A task whose hash is the number of its creation, so that sets of tasks iterate alike at every replay.

    ``branch`` is "" for the root, ".2" for the second task that it created, ".2.1" for that one's first; ``counts``
    counts what was asked for, by name. ``asked_to_end`` says that it was cancelled after the workflow's return, or
    the root by a message.
    """

    __slots__ = ("asked_to_end", "branch", "children", "counts", "number", "prefix")

    branch: str
    children: int
    counts: dict[str, int]
    number: int
    prefix: str
    asked_to_end: bool

    def __hash__(self) -> int:
        return self.number

    @property
    def failed_unheard(self) -> bool:
        """Whether it has failed and nobody has retrieved its error."""
        return bool(self._log_traceback)

    @property
    def awaited(self) -> asyncio.Future[Any] | None:
        """The future that it waits for."""
        awaited: asyncio.Future[Any] | None = self._fut_waiter  # type: ignore[attr-defined]
        return awaited


class TurnFuture(asyncio.Future[Any]):
    """A plain future of a turn; its hash is the number of its creation."""

    __slots__ = ("number",)

    number: int

    def __hash__(self) -> int:
        return self.number


if sys.version_info >= (3, 12):
    current_task = asyncio.current_task
else:  # the same, without a Python call
    current_task = asyncio.tasks._current_tasks.get  # type: ignore[attr-defined]

TIMER = " timer"  # no step has a name that begins with a space
_SPARE_TASKS = 8
_NEVER = 1 << 62
"""The due time of an infinite delay, in microseconds: in 146,000 years."""


def _microseconds(seconds: float) -> int:
    """Seconds as microseconds; for ever, as with every event loop, if they are infinite. Raises ValueError for NaN."""
    if seconds != seconds:
        raise ValueError("a delay is NaN (not a number). Give seconds, or math.inf for ever.")
    return _NEVER if seconds == inf else round(seconds * 1_000_000)


class BareLoop(SandboxLoop):
    """The part of the turn loop that asyncio uses. Time stands still during a turn; ``now`` is microseconds.

    Everything that could be put into a set has a creation number as its hash, so that asyncio's sets iterate alike at
    every replay of a process. ``tasks`` holds the tasks made by the code, ``generators`` its asynchronous generators.
    A ``dead`` loop belongs to an evicted process: what its code still asks for is dropped and never comes.
    """

    __slots__ = (
        "_spare", "dead", "eager", "generators", "now", "numbers", "process_id", "ready", "root", "tasks", "timers",
        "troubles",
    )  # fmt: skip

    get_debug = bool  # a callable that answers False, faster than a function would

    def __init__(self, process_id: bytes) -> None:
        self.process_id = process_id
        self.now = 0
        # Low bits count; high bits keep the hashes of different processes apart, the same at every replay.
        self.numbers = int.from_bytes(process_id[-6:], "big") << 12
        self.ready: deque[Any] = deque()
        self.timers = Timers()
        self.root: TurnTask | None = None
        self.tasks: list[TurnTask] = []
        self._spare = _SPARE_TASKS
        self.generators: list[Any] = []
        self.troubles: list[dict[str, Any]] = []
        self.dead = False
        self.eager = False

    def drain(self) -> None:
        """Call what is ready, first in first out, until nothing is."""
        ready = self.ready
        popleft = ready.popleft
        for _ in repeat(None, TURN_CALLS):
            if not ready:
                return
            callback, args, context = popleft()
            try:
                context.run(callback, *args)
            except (KeyboardInterrupt, SystemExit) as error:
                if pressed(error):
                    raise  # for the worker, not for the process: this turn does not count
                # the task that raised it has failed with it
            except BaseException as error:
                self.call_exception_handler({"message": f"an error in the callback {callback!r}", "exception": error})
        raise WorkflowMisuse(
            f"a turn made {TURN_CALLS:,} calls without waiting for anything. "
            "Wait for a step, a timer or a signal instead of turning in a circle."
        )

    def place(self, name: str) -> str:
        """The next place of that name in the branch that runs now."""
        task = current_task(self)
        if type(task) is not TurnTask:
            task = self.asker(task)
        counts = task.counts
        counts[name] = count = counts.get(name, 0) + 1
        return task.prefix + str(count)

    def asker(self, task: Any) -> TurnTask:
        """The task that asks if none of ours runs: a plain callback counts as the root."""
        if self.root is None or task is not None:
            raise WorkflowMisuse("a task was made by asyncio.Task(). Use asyncio.create_task() or a TaskGroup.")
        return self.root

    # -- time ----------------------------------------------------------------------------------------------------

    def time(self) -> float:
        """The turn's time in seconds since 1970."""
        return self.now / 1_000_000

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> ScheduledCall | None:
        """Call it in this turn, after what is ready already."""
        if self.dead:
            return None
        if context is not None and type(callback) is BuiltinFunctionType:  # a C task resumes itself: it wants no handle
            self.ready.append((callback, args, context))
            return None
        call = ScheduledCall((callback, args, copy_context() if context is None else context))
        self.ready.append(call)
        return call

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Timer | ScheduledCall | None:
        """Open a timer that fires ``delay`` seconds from the turn's time; no delay means in this turn."""
        due = self.now if delay <= 0 else max(self.now + _microseconds(delay), self.now + 1)
        return self._timer(due, callback, args, context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Timer | ScheduledCall | None:
        """Open a timer that fires at ``when``, in seconds of :meth:`time`; a past time means in this turn."""
        due = self.now if when <= self.time() else max(_microseconds(when), self.now + 1)
        return self._timer(due, callback, args, context)

    def _timer(
        self, due: int, callback: Callable[..., Any], args: Any, context: Context | None
    ) -> Timer | ScheduledCall | None:
        if due <= self.now:
            return self.call_soon(callback, *args, context=context)
        if self.dead:
            return ScheduledCall((callback, args, context))  # it will never be called
        return self.open_timer(due, self.place(TIMER), callback, args, context)

    def open_timer(
        self, due: int, place: str, callback: Callable[..., Any], args: Any, context: Context | None = None
    ) -> Timer:
        """Open a timer at a place of its own: it fires at ``due`` (microseconds), in a later turn."""
        self.numbers += 1
        timer = Timer(
            self.timers, due, self.numbers, place, callback, args, copy_context() if context is None else context
        )
        self.timers.add(timer)
        return timer

    # -- futures and tasks -----------------------------------------------------------------------------------------

    def create_future(self) -> TurnFuture:
        """A future whose hash is the number of its creation."""
        future = TurnFuture(loop=self)  # type: ignore[arg-type]
        future.number = self.numbers = self.numbers + 1
        return future

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any] | Ask[Any],
        *,
        name: str | None = None,
        context: Context | None = None,
        eager_start: bool | None = None,
    ) -> asyncio.Future[Any]:
        """A task with a branch of its own: the n-th that its creator has made. A step is its own task."""
        if isinstance(coro, Ask):
            if name is not None:
                coro.set_name(name)
            return coro
        if self.dead:
            coro.close()
            return self.create_future()
        parent = current_task(self)
        if type(parent) is not TurnTask:
            parent = self.asker(parent)
        parent.children += 1
        branch = f"{parent.branch}.{parent.children}"
        if len(self.tasks) >= self._spare:
            self.tasks = [task for task in self.tasks if not task.done() or task.failed_unheard]
            self._spare = 2 * len(self.tasks) + _SPARE_TASKS
        return self.make_task(coro, branch, name, context, self.eager if eager_start is None else eager_start)

    def make_task(
        self,
        coro: Coroutine[Any, Any, Any],
        branch: str,
        name: str | None = None,
        context: Context | None = None,
        eager: bool = False,
    ) -> TurnTask:
        """A task for the branch of that name."""
        task = TurnTask.__new__(TurnTask)
        task.branch = branch
        task.prefix = f"{branch}:" if branch else ""
        task.children = 0
        task.counts = {}
        task.asked_to_end = False
        task.number = self.numbers = self.numbers + 1
        if branch:
            self.tasks.append(task)
        name = name or f"task{branch}"
        if eager:
            TurnTask.__init__(task, coro, loop=self, name=name, context=context, eager_start=True)  # type: ignore
        else:
            TurnTask.__init__(task, coro, loop=self, name=name, context=context)  # type: ignore[arg-type]
        return task

    def set_task_factory(self, factory: Any) -> None:
        """Only asyncio's own factories are accepted: the default, and the eager one."""
        if factory is not None and factory is not getattr(asyncio, "eager_task_factory", None):
            raise WorkflowMisuse("a turn makes its own tasks. Use None or asyncio.eager_task_factory.")
        self.eager = factory is not None

    def get_task_factory(self) -> Any:
        """The factory last set."""
        return getattr(asyncio, "eager_task_factory", None) if self.eager else None

    # -- the rest of an event loop's face ----------------------------------------------------------------------------

    def is_running(self) -> bool:
        """Whether a turn of this loop is running in this thread."""
        return asyncio._get_running_loop() is self  # type: ignore[comparison-overlap]

    def is_closed(self) -> bool:
        """Whether the process was dropped from memory."""
        return self.dead

    def set_debug(self, enabled: bool) -> None:
        """Ignored: a turn has no slow callbacks to report."""

    def get_exception_handler(self) -> None:
        """None: errors that nobody retrieves are logged when the process ends."""

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """The same as :meth:`call_exception_handler`."""
        self.call_exception_handler(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep an error that nobody retrieves; it is logged at one fixed point, when the process ends (rule 20)."""
        if not self.dead:
            self.troubles.append(context)
