"""The child OS processes in which hard steps run: a bounded pool, filled as there is need, with a thread for each.

A cell is killed with the attempt in it: at its deadline, when the worker no longer holds its process, and, after a
moment for its clean-up, when the code drops the step. The same thread starts a fresh cell for the next call.
"""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from perdure import limits
from perdure.clock import Computer
from perdure.errors import StepCrashed
from perdure.exhaustion import THREADS, exhausted
from perdure.logs import logger
from perdure.runtime.shortage import Shortages
from perdure.runtime.steps.isolated.child import IsolatedChild, telling
from perdure.runtime.steps.isolated.fork_server import attach, detach
from perdure.runtime.steps.isolated.protocol import ChildReady, Said, StepBeat, StepBegun, StepEnded, StepRaised
from perdure.telemetry import Telemetry


class HardCall:
    """One attempt for a cell; ``begun``, ``heard`` (with progress) and ``ended`` are called on the event loop.

    ``late``, called in the pool's thread, says that its lease is over: then ``refused`` is called, and nothing else.
    """

    __slots__ = (
        "begun",
        "ended",
        "given_up",
        "hanging",
        "heard",
        "late",
        "order",
        "ordered",
        "progress",
        "refused",
        "thread",
        "watch",
    )  # fmt: skip

    def __init__(
        self,
        order: bytes,
        begun: Callable[[], None],
        heard: Callable[[bytes], None],
        ended: Callable[[StepEnded | StepCrashed], None],
        late: Callable[[], bool] = bool,
        refused: Callable[[], object] = bool,
    ) -> None:
        self.late = late
        self.refused = refused
        self.order = order
        self.begun = begun
        self.heard = heard
        self.ended = ended
        self.given_up = False
        self.hanging = False
        self.ordered = False
        self.thread: PoolThread | None = None
        self.progress: bytes | None = None
        self.watch: Any = None


class NoChild:
    """The system refused a cell: that was no attempt, and the call is made later."""

    __slots__ = ("error", "resource")

    def __init__(self, resource: str, error: BaseException) -> None:
        self.resource = resource
        self.error = error


class PoolThread:
    """Makes calls in its cell, which it starts when there is none, and ends after a call that may have harmed it.

    It calls the pool on the event loop: ``started`` for a cell, ``begun`` and ``heard`` for a call, ``ended`` with its
    answer, ``left`` when the thread ends.
    """

    def __init__(self, number: int, pool: ChildPool) -> None:
        self.child: IsolatedChild | None = None
        self.ending = False
        self.calls: SimpleQueue[HardCall | None] = SimpleQueue()
        self._pool = pool
        self._post = pool.post
        pool.machine.start_thread(self._live, f"perdure cell {number}")

    def _live(self) -> None:
        try:
            while (call := self.calls.get()) is not None:
                answer = self._answer(call)
                self._post(self._pool.ended, self, call, answer)
                stopped = call.given_up and answer is not None
                spent = isinstance(answer, StepRaised) and answer.spent
                if stopped or spent or (self.child is not None and self.child.calls >= limits.CELL_CALLS):
                    self._end()
                del call, answer
            self._end()
            self._post(self._pool.left)
        except RuntimeError:
            self._end()  # the event loop is closed: nobody is left to hear it

    def _answer(self, call: HardCall) -> StepEnded | StepCrashed | NoChild | None:
        """Make a call, unless it was given up before; when it has crashed, its cell is gone."""
        answer: StepEnded | StepCrashed | None = None
        try:
            while answer is None:
                child = self._open(call)
                if child is None:
                    return self._died(call, before="could take up the step")
                call.ordered = True
                if call.given_up or call.late():
                    return None
                again = child.calls > 0  # it may have died while nobody listened: then another cell is asked
                answer = self._talk(child, call, again=again)
        except Exception as error:  # whatever goes wrong here, the call is answered
            self._end()
            if not call.ordered and (resource := exhausted(error, spawning=True)) is not None:
                return NoChild(resource, error)
            return StepCrashed(f"no cell can be started: {type(error).__name__}: {error}. Check this machine.")
        return answer

    def _open(self, call: HardCall) -> IsolatedChild | None:
        """The cell, ready for an order; None if it died before it was ready."""
        if self.child is not None and self.child.dead:
            self._end()
        if self.child is None:
            self.child = IsolatedChild(self._pool.sources, self._pool.server)
            self._post(self._pool.started)
            if self.ending or call.hanging:  # since before there was a cell to be killed
                self.child.kill()
            if not isinstance(said(self.child), ChildReady):
                return None
        return self.child

    def _talk(self, child: IsolatedChild, call: HardCall, *, again: bool) -> StepEnded | StepCrashed | None:
        """Hear a call through to its answer; None if the cell died before it began and another should be asked."""
        child.order(call.order)
        begun = False
        while True:
            match said(child):
                case StepBegun():
                    begun = True
                    self._post(self._pool.begun, call)
                case StepBeat(progress):
                    if begun:
                        self._tell(call, bytes(progress))
                case ChildReady():
                    pass
                case None:
                    if again and not (begun or call.given_up or call.hanging):
                        self._end()
                        return None
                    return self._died(call, before="" if begun else "began the step")
                case answer:
                    return answer

    def _tell(self, call: HardCall, progress: bytes) -> None:
        """Pass a heartbeat on: one callback at a time, however often a step beats."""
        told, call.progress = call.progress, progress
        if told is None:
            self._post(self._pool.heard, call)

    def _end(self) -> int:
        """End the cell, if there is one; its exit code."""
        child, self.child = self.child, None
        return 0 if child is None else child.end()

    def _died(self, call: HardCall, *, before: str) -> StepCrashed:
        """What is known of the death of the cell, in the middle of a call or ``before`` it did something."""
        child = self.child
        code = self._end()
        if call.hanging:
            return StepCrashed(
                f"the child OS process did not begin within {limits.CELL_START_SECONDS:g} s and was killed: "
                "importing the modules of the application hangs or is slow. Make their import quick."
            )
        how = f"was killed by {_signal(-code)}" if code < 0 else f"ended with exit code {code}"
        text = f"the child OS process of the step {how}" + (f" before it {before}" if before else "")
        words = "" if child is None else telling(child.last_words.decode(errors="replace"))
        if words:
            return StepCrashed(f"{text}. Its last output on stderr:\n{words}")
        if code == -signal.SIGKILL:
            return StepCrashed(f"{text}: by a person, or by the system when memory ran out. See the system's log.")
        return StepCrashed(f"{text} and wrote nothing to stderr. Run the step's function by hand.")


def said(child: IsolatedChild) -> Said | None:
    """What a cell says next; None when it has died, or when something else has written on the channel."""
    try:
        return child.hear()
    except ValueError:
        return None


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


log = logger("step")

CLOSE_SECONDS = 5.0
"""How long killed cells may take to end when a worker stops; they need milliseconds."""


class ChildPool:
    """At most ``size`` calls at once; the others wait in order. ``sources`` are what the cells import."""

    def __init__(
        self, sources: Sequence[str], telemetry: Telemetry, size: int, machine: Computer, shortages: Shortages
    ) -> None:
        self.sources = sources
        self.telemetry = telemetry
        self.machine = machine
        self.shortages = shortages
        self.size = size
        self.server = attach()
        self._loop = asyncio.get_running_loop()
        self.post = self._loop.call_soon_threadsafe
        self._waiting: deque[HardCall] = deque()
        self._busy: dict[PoolThread, HardCall] = {}
        self._idle: dict[PoolThread, asyncio.TimerHandle] = {}
        self._numbers = 0
        self._leaving = 0
        self._refused: float | None = None
        self._again: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()

    def call(self, call: HardCall) -> None:
        """Make the call as soon as there is a cell for it."""
        self._waiting.append(call)
        self._next()

    def give_up(self, call: HardCall, *, gently: bool) -> None:
        """The call no longer counts: it is not made, or its cell is killed; ``gently``, after a moment to clean up."""
        if call.given_up:
            return
        call.given_up = True
        if call.thread is None or not call.ordered or call.thread.child is None:
            return  # it is not made any more, and its cell, which may just be starting, is kept for others
        child = call.thread.child
        self.telemetry.count("cells_killed")
        if gently and call.watch is None:
            child.stop()
            self._loop.call_later(limits.CELL_GRACE_SECONDS, child.kill)
        else:
            child.kill()

    async def close(self) -> None:
        """Kill what runs, and wait until nothing of it is left."""
        self._waiting.clear()
        if self._again is not None:
            self._again.cancel()
        for thread, call in self._busy.items():
            self.give_up(call, gently=False)
            thread.ending = True
            if thread.child is not None:
                thread.child.kill()  # also one that is just starting
        for thread in [*self._busy, *self._idle]:
            self._dismiss(thread)
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                while self._leaving:
                    self._empty.clear()
                    await self._empty.wait()
        except TimeoutError:
            log.error("%d child OS processes of hard steps do not end although they were killed", self._leaving)
        detach(self.server)

    def _next(self) -> None:
        """Begin what can begin."""
        while self._waiting:
            if self._waiting[0].given_up:
                self._waiting.popleft()
                continue
            if not self._idle and len(self._busy) >= self.size:
                return
            thread = self._take()
            if thread is None:
                return
            call = self._waiting.popleft()
            call.thread = thread
            call.watch = self._loop.call_later(limits.CELL_START_SECONDS, self._hangs, call)
            self._busy[thread] = call
            thread.calls.put(call)

    def held_up(self) -> bool:
        """Whether the system has refused cells for so long that nobody should wait for one here."""
        return self._refused is not None and self._loop.time() - self._refused >= limits.SHORTAGE_WAIT_SECONDS

    def _short(self, resource: str, error: BaseException) -> None:
        """The system has refused a cell, or its thread: try again soon."""
        self.shortages.refused(resource, error)
        if self._refused is None:
            self._refused = self._loop.time()
        if self._again is None:
            self._again = self._loop.call_later(limits.SHORTAGE_AGAIN_SECONDS, self._try_again)

    def _try_again(self) -> None:
        self._again = None
        if not self._waiting:
            self._refused = None  # the next call finds out
        self._next()

    def _take(self) -> PoolThread | None:
        """A thread of the pool, or None while the system refuses it."""
        if self._idle:
            thread, leaving = self._idle.popitem()  # the one used last, so that the others may go
            leaving.cancel()
            return thread
        try:
            thread = PoolThread(self._numbers + 1, self)
        except (RuntimeError, MemoryError) as error:
            self._short(THREADS, error)
            return None
        self._numbers += 1
        return thread

    def _dismiss(self, thread: PoolThread) -> None:
        leaving = self._idle.pop(thread, None)
        if leaving is not None:
            leaving.cancel()
        self._leaving += 1
        thread.calls.put(None)

    def _hangs(self, call: HardCall) -> None:
        """A cell has not begun in its time."""
        self.telemetry.count("cells_killed")
        call.hanging = True
        if call.thread is not None and call.thread.child is not None:
            call.thread.child.kill()

    # -- what a cell's thread tells --------------------------------------------------------------------------------

    def started(self) -> None:
        """A cell was started."""
        self.telemetry.count("cells_started")

    def begun(self, call: HardCall) -> None:
        """The code is imported: the attempt begins, and its time with it."""
        self._unwatch(call)
        self._refused = None
        if not call.given_up:
            call.begun()

    def heard(self, call: HardCall) -> None:
        """The step has sent a heartbeat, perhaps with new progress."""
        progress, call.progress = call.progress, None
        if progress is not None and not call.given_up:
            call.heard(progress)

    def ended(self, thread: PoolThread, call: HardCall, answer: StepEnded | StepCrashed | NoChild | None) -> None:
        """The call is answered, or its cell has died; without an answer it was given up, or its lease was over."""
        self._unwatch(call)
        if isinstance(answer, NoChild):
            self._not_made(thread, call, answer)
            return
        if isinstance(answer, StepCrashed) and not (call.given_up or call.hanging):
            self.telemetry.count("cells_crashed")
        del self._busy[thread]
        call.thread = None  # whoever gives it up now must not kill the cell of another call
        self._idle[thread] = self._loop.call_later(limits.CELL_IDLE_SECONDS, self._dismiss, thread)
        self._next()
        if answer is not None:
            call.ended(answer)
        elif not call.given_up:
            call.refused()

    def _not_made(self, thread: PoolThread, call: HardCall, answer: NoChild) -> None:
        """The system refused a cell: the call is made again when there is one, and nothing has been tried."""
        del self._busy[thread]
        self._idle[thread] = self._loop.call_later(limits.CELL_IDLE_SECONDS, self._dismiss, thread)
        call.thread = None
        if not call.given_up:
            self._waiting.appendleft(call)
        self._short(answer.resource, answer.error)

    def left(self) -> None:
        """A thread of the pool has ended, and its cell with all that was in it."""
        self._leaving -= 1
        self._empty.set()

    def _unwatch(self, call: HardCall) -> None:
        if call.watch is not None:
            call.watch.cancel()
            call.watch = None
