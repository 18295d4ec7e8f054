"""The async runner: async steps run one after another in one task; a step that waits keeps that task for itself.

A task for each attempt would cost more than a step that only computes. A step sees no difference: its attempt has a
context of its own, and a task is only cancelled for the attempt that runs in it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from perdure.authoring.step import Attempt
from perdure.turns.interrupt import pressed

if TYPE_CHECKING:
    from perdure.runtime.steps.attempt_run import AttemptRun


class AsyncRunner:
    """Runs attempts in the order in which they are put; ``completed`` gets a step's value, ``failed`` its error.

    ``enter`` is called in the context of each attempt, with what its code may know of it.
    ``lapse`` gets an attempt whose lease is over by ``ticks`` when it would begin or go on: it does neither.
    A step that does not wait cannot be stopped.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        completed: Callable[[AttemptRun, Any], None],
        failed: Callable[[AttemptRun, BaseException], None],
        lapse: Callable[[AttemptRun], None],
        ticks: Callable[[], float],
        enter: Callable[[Callable[[], Attempt]], object],
    ) -> None:
        self._loop = loop
        self._lapse = lapse
        self._ticks = ticks
        self._enter = enter
        self._completed = completed
        self._failed = failed
        self._context = copy_context()
        self._waiting: deque[AttemptRun] = deque()
        self._runners = 0  # tasks that no attempt has kept: each takes the next one

    def put(self, attempt_run: AttemptRun) -> None:
        """Have the attempt begin soon."""
        self._waiting.append(attempt_run)
        if not self._runners:
            self._man(1)

    def _man(self, number: int) -> None:
        for _ in range(number):
            self._runners += 1
            asyncio.Task(self._run(), loop=self._loop, context=self._context.copy())

    async def _run(self) -> None:
        runner = asyncio.current_task()
        assert runner is not None
        waiting = self._waiting
        try:
            while waiting and not runner.cancelling():
                attempt_run = waiting.popleft()
                if attempt_run.over:
                    continue
                if attempt_run.instance.lease_end <= self._ticks():
                    self._lapse(attempt_run)
                    continue
                attempt_run.task = runner
                rest = self._begin(attempt_run)
                if rest is not None:
                    break
            else:
                return
        finally:
            self._runners -= 1
            if waiting:  # start the others now, each in a task: if one of them waits, most of them may
                self._man(len(waiting) - self._runners)
        try:
            value = await rest
        except BaseException as error:
            if pressed(error):
                raise
            self._failed(attempt_run, error)
        else:
            self._completed(attempt_run, value)

    def _begin(self, attempt_run: AttemptRun) -> _Rest | None:
        """Run a step until it ends, or waits for the first time: return the rest of it, if any."""
        ask = attempt_run.ask
        context = self._context.copy()
        context.run(self._enter, attempt_run.current)
        try:
            code = ask.step.function(*ask.args, **ask.kwargs)
            if code.__class__ is not CoroutineType:
                code = _awaited(code)
            awaits = context.run(code.send, None)
        except StopIteration as end:
            self._completed(attempt_run, end.value)
        except BaseException as error:  # a step may raise anything; its worker must live
            if pressed(error):
                raise
            self._failed(attempt_run, error)
        else:
            return _Rest(self, attempt_run, context, code, awaits)
        return None


class _Rest:
    """A coroutine that waits for ``awaits``: when awaited, it goes on in its own context."""

    __slots__ = ("_async_runner", "_attempt_run", "_awaits", "_code", "_context")

    def __init__(
        self,
        async_runner: AsyncRunner,
        attempt_run: AttemptRun,
        context: Context,
        code: Coroutine[Any, Any, Any],
        awaits: Any,
    ) -> None:
        self._async_runner = async_runner
        self._attempt_run = attempt_run
        self._context = context
        self._code = code
        self._awaits = awaits

    def __await__(self) -> Generator[Any, Any, Any]:
        run, code, awaits = self._context.run, self._code, self._awaits
        attempt_run, ticks = self._attempt_run, self._async_runner._ticks
        try:
            while True:
                try:
                    try:
                        sent = yield awaits
                    except GeneratorExit:
                        raise
                    except BaseException:
                        if not attempt_run.over and attempt_run.instance.lease_end <= ticks():
                            self._async_runner._lapse(attempt_run)
                            yield  # see below: that takes the place of this error
                        raise
                    if attempt_run.instance.lease_end <= ticks() and not attempt_run.over:
                        self._async_runner._lapse(attempt_run)
                        yield  # ``lapse`` has cancelled the task that we are in: that arrives here
                except BaseException as error:
                    awaits = run(code.throw, error)
                else:
                    awaits = run(code.send, sent)
        except StopIteration as end:
            return end.value


async def _awaited(awaitable: Any) -> Any:
    return await awaitable
