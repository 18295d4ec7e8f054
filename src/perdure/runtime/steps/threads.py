"""Threads: where sync steps run. A thread whose call outlives its time is left behind, and another takes its place.

The threads are daemons: a step that hangs keeps no worker from ending.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable
from queue import SimpleQueue
from typing import Any

from perdure import limits
from perdure.clock import Computer
from perdure.exhaustion import THREADS
from perdure.runtime.shortage import HUNG_STEPS, Shortages


class ThreadCall:
    """One call for a thread; on the event loop ``begun`` is called first, and ``ended`` with its result or error.

    ``key`` is that of the step: hanging calls of one step keep no other step from its threads.
    """

    __slots__ = ("begun", "ended", "function", "given_up", "key", "under_way")

    def __init__(
        self,
        function: Callable[[], Any],
        begun: Callable[[], None],
        ended: Callable[[Any, BaseException | None], None],
        key: Hashable = None,
    ) -> None:
        self.function = function
        self.begun = begun
        self.ended = ended
        self.key = key
        self.under_way = False
        self.given_up = False


class Threads:
    """At most ``limits.STEP_THREADS`` calls at once, not counting those left behind; the others wait in order.

    No call of a step begins while too many of its calls are left behind, and no call at all while too many in all are.
    Where the system refuses a thread, the calls wait for one that is there, or for a later try.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, machine: Computer, shortages: Shortages) -> None:
        self._loop = loop
        self._machine = machine
        self._shortages = shortages
        self._waiting: deque[ThreadCall] = deque()
        self._begun: SimpleQueue[ThreadCall | None] = SimpleQueue()
        self._busy = 0
        self._left_behind: Counter[Hashable] = Counter()
        self._threads = 0
        self._refused: float | None = None
        self._again: asyncio.TimerHandle | None = None
        self._closed = False

    def call(self, call: ThreadCall) -> None:
        """Make the call as soon as there is a thread for it."""
        self._waiting.append(call)
        self._next()

    def give_up(self, call: ThreadCall) -> None:
        """The call no longer counts: it is not made, or its thread is left behind."""
        if call.given_up:
            return
        call.given_up = True
        if call.under_way:
            self._busy -= 1
            self._left_behind[call.key] += 1
            self._look()
        self._next()

    def held_up(self, key: Hashable = None) -> bool:
        """Whether calls of a step (None: of some step) cannot begin, for longer than a moment."""
        full = self._full(key) if key is not None else self._hung() or any(map(self._full, self._left_behind))
        if full or self._refused is None:
            return full
        return self._loop.time() - self._refused >= limits.SHORTAGE_WAIT_SECONDS

    def close(self) -> None:
        """Let the threads end, each after the call that it is in."""
        self._closed = True
        self._waiting.clear()
        if self._again is not None:
            self._again.cancel()
        for _ in range(self._threads):
            self._begun.put(None)

    # -- beginning -------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        """Begin what can begin."""
        passed: list[ThreadCall] = []
        while self._waiting and self._busy < limits.STEP_THREADS and not self._hung():
            call = self._waiting.popleft()
            if call.given_up:
                continue
            if self._full(call.key):
                passed.append(call)
                continue
            if self._busy + self._left_behind.total() >= self._threads and not self._grow():
                passed.append(call)
                break
            call.under_way = True
            self._busy += 1
            call.begun()
            self._begun.put(call)
            if self._machine.simulated:
                self._machine.in_virtual_thread(self._perform_next)
        self._waiting.extendleft(reversed(passed))

    def _grow(self) -> bool:
        """Start one more thread; where the system refuses it, try again soon."""
        try:
            self._machine.start_thread(self._live, f"perdure step {self._threads + 1}")
        except (RuntimeError, MemoryError) as error:
            self._shortages.refused(THREADS, error)
            if self._refused is None:
                self._refused = self._loop.time()
            self._later()
            return False
        self._threads += 1
        self._refused = None
        return True

    def _later(self) -> None:
        if self._again is None and not self._closed:
            self._again = self._loop.call_later(limits.SHORTAGE_AGAIN_SECONDS, self._try_again)

    def _try_again(self) -> None:
        """Begin what waits, and check whether what has held it up still does."""
        self._again = None
        if not self._waiting:
            self._refused = None  # the next call finds out
        self._next()
        self._look()

    # -- what hangs ------------------------------------------------------------------------------------------------

    def _hung(self) -> bool:
        return self._left_behind.total() >= limits.LEFT_BEHIND_THREADS

    def _full(self, key: Hashable) -> bool:
        """Whether no call of a step may begin, since too many calls hang: of that step, or in all."""
        most = min(limits.STEP_LEFT_BEHIND_THREADS, limits.LEFT_BEHIND_THREADS)
        return self._hung() or self._left_behind[key] >= most

    def _look(self) -> None:
        """Report the calls that hang while they keep others from beginning."""
        if self._hung():
            count = self._left_behind.total()
            self._shortages.lasts(HUNG_STEPS, f"{count} calls have outlived their time, no sync step can begin")
            self._later()
            return
        for key, count in self._left_behind.items():
            if self._full(key):
                why = f"{count} calls of {key} have outlived their time, no other of that step can begin"
                self._shortages.lasts(HUNG_STEPS, why, restart=limits.HUNG_STEP_RESTART_SECONDS)
                self._later()

    # -- in a thread -----------------------------------------------------------------------------------------------

    def _live(self) -> None:
        while (call := self._begun.get()) is not None:
            if not self._perform(call):
                return
            del call

    def _perform_next(self) -> None:
        call = self._begun.get()
        if call is not None:
            self._perform(call)

    def _perform(self, call: ThreadCall) -> bool:
        result: Any = None
        failure: BaseException | None = None
        try:
            if call.given_up:  # while it waited for this thread
                raise asyncio.CancelledError
            result = call.function()
        except BaseException as error:  # whatever a step raises is its answer, never the end of a thread
            failure = error
        try:
            self._loop.call_soon_threadsafe(self._ended, call, result, failure)
        except RuntimeError:
            return False  # the event loop is closed: nobody is left to hear it
        return True

    def _ended(self, call: ThreadCall, result: Any, failure: BaseException | None) -> None:
        call.under_way = False  # one that is given up only now, while its answer is heard, leaves no thread behind
        if call.given_up:
            self._left_behind[call.key] -= 1
            if not self._left_behind[call.key]:
                del self._left_behind[call.key]
        else:
            self._busy -= 1
        if self._refused is not None:  # the threads that exist still serve, if slowly
            self._refused = self._loop.time()
            self._shortages.progressed(THREADS)
        self._next()
        call.ended(result, failure)
