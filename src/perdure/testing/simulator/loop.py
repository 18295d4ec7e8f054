"""The simulator's event loop: virtual time, one thread, no outside; which life goes on next is drawn.

Within one life callbacks run in the order in which they were registered, as asyncio promises; between lives any order
is possible, so it is drawn. When nothing is ready, time jumps to the next timer.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import _set_running_loop
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from heapq import heappop, heappush
from math import inf, nextafter
from typing import TYPE_CHECKING, Any, Never

from perdure.errors import StoreError
from perdure.testing.simulator.choice import Choices
from perdure.testing.simulator.life import LIFE, Handle, Life
from perdure.testing.simulator.violation import Escape, Violation
from perdure.turns.bare_loop import OUTSIDE

CIRCLE_CALLS = 5_000
CIRCLE_SECONDS = 10.0
"""So many calls for each life in so many virtual seconds, in which no event is written: a circle without end."""

CUT_SHORT = "cut_short"
"""The name for the end of a history that takes longer than it may: it is no law."""


class SimTask(asyncio.Task[Any]):
    """A task whose hash is the number of its creation, so that asyncio's sets of tasks iterate alike every time."""

    number = 0
    life: Life | None = None

    def __hash__(self) -> int:
        return self.number

    def cancel(self, msg: Any | None = None) -> bool:
        """Ask it to end. Asyncio would forget an error that nobody has read: it is told."""
        if self.done() and self._log_traceback:
            text = "a task was cancelled that had failed, and nobody has read its error"
            self.get_loop().call_exception_handler({"message": text, "exception": self.exception(), "future": self})
        return super().cancel(msg)


class SimFuture(asyncio.Future[Any]):
    """A future whose hash is the number of its creation."""

    number = 0
    life: Life | None = None

    def __hash__(self) -> int:
        return self.number


if TYPE_CHECKING:
    _Base = object
else:
    _Base = asyncio.AbstractEventLoop


class SimLoop(_Base):
    """Runs the lives of one history. ``world`` is the life of everything that is not simulated: it cannot be killed.

    ``troubles`` are errors that nobody retrieved, but for those of lives that were killed before they could. What is
    scheduled for a dead life is kept in ``graveyard`` and never run: its ``finally`` blocks would be a kill that says
    goodbye. ``most`` calls are made, then all ends.
    """

    def __init__(self, choices: Choices, most: int | None = None) -> None:
        self.choices = choices
        self.now = 0.0
        self.calls = 0
        self.world = Life("world")
        self.lives = [self.world]
        self.graveyard: list[Any] = []
        self.troubles: list[dict[str, Any]] = []
        self.failure: BaseException | None = None
        self._numbers = 0
        self._most = most or sys.maxsize
        self._patience = 0
        self._circle_ends = 0.0
        self._timers: list[tuple[float, int, Handle]] = []
        self._generators: list[Any] = []
        self._closed = False
        self._running = False
        self.gone_on()

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the world until it ends; raises what it raises, or the first failure of the history."""
        hooks = sys.get_asyncgen_hooks()
        _set_running_loop(self)  # type: ignore[arg-type]
        sys.set_asyncgen_hooks(self._generators.append, _dropped)
        self._running = True
        try:
            task = self.create_task(main)
            while not task.done():
                self._once()
                if self.failure is not None:
                    raise self.failure
            return task.result()
        finally:
            self._running = False
            sys.set_asyncgen_hooks(*hooks)
            _set_running_loop(None)

    def fail(self, error: BaseException) -> None:
        """End the history with this error, even if some code catches it."""
        if self.failure is None:
            self.failure = error

    def gone_on(self) -> None:
        """An event was written or a message has come, or time has passed: what was done until now was no circle."""
        self._circle_ends = self.now + CIRCLE_SECONDS
        self._patience = min(self.calls + CIRCLE_CALLS * (len(self.lives) + 1), self._most)

    def _once(self) -> None:
        """Call one thing that is ready, or let time jump to the next timer."""
        found: list[tuple[int, Life]] = []
        for life in self.lives:
            ready = life.ready
            while ready:
                if ready[0].gone:
                    ready.popleft()
                    continue
                if not life.paused:
                    found.append((ready[0].number, life))
                break
        if not found:
            self._jump()
            return
        if len(found) > 1:
            found.sort()  # no two have the same number
            chosen = found[self.choices.draw(len(found), "next")][1]
        else:
            chosen = found[0][1]
        handle = chosen.ready.popleft()
        self.calls += 1
        if self.calls > self._patience:
            if self.calls > self._most:
                self.fail(Violation(CUT_SHORT, f"{self._most:,} calls were made, and it was to take no more"))
            else:
                text = f"{CIRCLE_CALLS:,} calls of each life within {CIRCLE_SECONDS:g} s, and no event was written"
                self.fail(Violation("no_circle", text))
            return
        try:
            handle.context.run(handle.callback, *handle.args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            violation = Violation("nothing_unexpected", f"a callback of {chosen.name} failed: {error!r}")
            violation.__cause__ = error
            self.fail(error if isinstance(error, Violation) else violation)

    def _jump(self) -> None:
        """Let it be the time of the next timer."""
        timers = self._timers
        while timers:
            until, _, handle = heappop(timers)
            if handle.gone:
                continue
            if handle.life.dead:
                self.graveyard.append(handle)
                continue
            if until > self.now:
                self.now = until
                if until >= self._circle_ends:
                    self.gone_on()
            handle.life.ready.append(handle)
            if handle.life.paused:
                continue
            return
        self.fail(Violation("no_deadlock", "nothing is ready and no timer is set, but the scenario has not ended"))

    # -- lives -----------------------------------------------------------------------------------------------------

    def born(self, name: str, number: int, rate: float = 1.0, start: float = 0.0) -> Life:
        """A new life; its clock shows ``start`` now and runs at ``rate``."""
        life = Life(name, number, rate, start - self.now * rate)
        self.lives.append(life)
        return life

    def kill(self, life: Life) -> None:
        """SIGKILL: nothing of this life runs any more, no ``finally`` either."""
        if life.dead or life is self.world:
            return
        life.dead = True
        self.lives.remove(life)
        # What it held must not be freed before the history's end: freeing a coroutine runs its clean-up. What waits to
        # run is kept here; a task that waits for a future is kept by it, since the collector rests meanwhile.
        self.graveyard.append(life.ready)

    def current(self) -> Life:
        """The life whose code is running."""
        return LIFE.get(self.world)

    def run_in(self, life: Life, code: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin a task in another life."""
        context = copy_context()
        context.run(LIFE.set, life)
        task: asyncio.Task[Any] = self.create_task(code, context=context)
        return task

    def call_in(self, life: Life, delay: float, callback: Callable[..., Any], *args: Any) -> Handle:
        """Call something in another life after so many seconds of the world's clock."""
        context = copy_context()
        context.run(LIFE.set, life)
        return self._at(self.now + delay, callback, args, context, life)

    # -- what asyncio asks of a loop -------------------------------------------------------------------------------

    def time(self) -> float:
        """Seconds of the running life's own monotonic clock."""
        life = LIFE.get(self.world)
        return life.start + self.now * life.rate

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Handle:
        """Call it as soon as its life's turn comes, after what is ready there already."""
        if context is None:
            context = copy_context()
        life = context.get(LIFE) or self.world
        self._numbers += 1
        handle = Handle(self._numbers, callback, args, context, life)
        if life.dead or self._closed:
            self.graveyard.append(handle)
        else:
            life.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Handle:
        """Call it after so many seconds of its life's clock."""
        if context is not None:
            return self.call_at(self.time() + delay, callback, *args, context=context)
        life = LIFE.get(self.world)
        when = life.start + self.now * life.rate + delay
        handle = self._at(_when(when, life), callback, args, copy_context(), life)
        handle.until = when
        return handle

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Handle:
        """Call it at a time of its life's clock."""
        if context is None:
            context = copy_context()
        life = context.get(LIFE) or self.world
        handle = self._at(_when(when, life), callback, args, context, life)
        handle.until = when
        return handle

    def _at(self, when: float, callback: Callable[..., Any], args: Any, context: Context, life: Life) -> Handle:
        self._numbers += 1
        handle = Handle(self._numbers, callback, args, context, life)
        handle.until = when
        if not self._closed:
            heappush(self._timers, (when, self._numbers, handle))
        return handle

    def create_future(self) -> SimFuture:
        """A future whose hash is the number of its creation."""
        future = SimFuture(loop=self)  # type: ignore[arg-type]
        self._numbers += 1
        future.number = self._numbers
        future.life = LIFE.get(self.world)
        return future

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
        eager_start: bool | None = None,
    ) -> SimTask:
        """A task whose hash is the number of its creation."""
        task = SimTask.__new__(SimTask)
        self._numbers += 1
        task.number = self._numbers
        task.life = LIFE.get(self.world) if context is None else context.get(LIFE)
        if self._closed:
            coro.close()
        more: dict[str, Any] = {"eager_start": True} if eager_start else {}
        task.__init__(coro, loop=self, name=name or f"task {self._numbers}", context=context, **more)  # type: ignore[misc]
        return task

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:
        """Have the running life call this when it gets that signal."""
        self.current().signals[sig] = lambda: callback(*args)

    def remove_signal_handler(self, sig: int) -> bool:
        """Take that back."""
        return self.current().signals.pop(sig, None) is not None

    get_debug = staticmethod(bool)
    """False: there are no slow callbacks to report. Every future and task asks: a builtin costs no frame."""

    def set_debug(self, enabled: bool) -> None:
        """Ignored."""

    def is_running(self) -> bool:
        """Whether the history is running."""
        return self._running

    def is_closed(self) -> bool:
        """Whether the history is over."""
        return self._closed

    def close(self) -> None:
        """End the history: from now on nothing is called, even if code asks for it."""
        self._closed = True

    async def shutdown_asyncgens(self) -> None:
        """Nothing: what a history leaves is not cleaned up."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing: there is no executor."""

    def get_task_factory(self) -> None:
        """None: tasks are made here."""

    def get_exception_handler(self) -> None:
        """None: errors that nobody retrieves are kept in ``troubles``."""

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """The same as :meth:`call_exception_handler`."""
        self.call_exception_handler(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep an error that nobody retrieved; the laws of the simulator end the history.

        Most are told when a history is freed. What a life that was killed has left is no matter, nor what the weather
        has done: whoever it stops for good is found by other laws.
        """
        error, whose = context.get("exception"), context.get("future") or context.get("task")
        life = getattr(whose, "life", None)
        if isinstance(error, Escape | Violation):
            self.fail(error)
        elif not isinstance(error, StoreError | None) and (life is None or not life.dead or life.stopped):
            self.troubles.append(context)


def _when(until: float, life: Life) -> float:
    """The world's time at which a life's clock shows that; no sooner, however both are rounded.

    Else whoever waits for the rest would look again at the same instant, for ever.
    """
    when = (until - life.start) / life.rate
    while life.start + when * life.rate < until:
        when = nextafter(when, inf)
    return when


def _dropped(generator: Any) -> None:
    """An unfinished generator was dropped: it is kept, and nothing of it runs."""


def _refusal(name: str) -> Callable[..., Never]:
    def refuse(self: SimLoop, *args: Any, **kwargs: Any) -> Never:
        error = Escape(
            f"{name}() of the event loop was called: a simulated history has no threads, no sockets and no other OS "
            "processes. Simulate async steps, and hand in what they would reach outside."
        )
        self.fail(error)
        raise error

    refuse.__name__ = name
    refuse.__doc__ = "Refused: it would leave the simulation."
    return refuse


for _name in OUTSIDE:
    if _name not in vars(SimLoop):
        setattr(SimLoop, _name, _refusal(_name))
