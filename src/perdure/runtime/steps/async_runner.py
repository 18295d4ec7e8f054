"""The relay: async steps run one after another in one task, until one of them waits: it keeps that task for itself.

A task of its own for every attempt costs more than a step that only computes. Nobody sees a difference: every attempt
has a context of its own, and the task that it finds itself in is cancelled for its sake alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from perdure.authoring.step import ATTEMPT
from perdure.turns.interrupt import pressed

if TYPE_CHECKING:
    from perdure.runtime.steps.attempt_run import Execution


class Relay:
    """Runs executions in the order in which they are put; ``completed`` gets a step's value, ``failed`` its error.

    ``lapse`` is told of an execution whose lease is over by ``ticks`` when it would begin or go on: it does not.
    A step that does not wait cannot be stopped.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        completed: Callable[[Execution, Any], None],
        failed: Callable[[Execution, BaseException], None],
        lapse: Callable[[Execution], None],
        ticks: Callable[[], float],
    ) -> None:
        self._loop = loop
        self._lapse = lapse
        self._ticks = ticks
        self._completed = completed
        self._failed = failed
        self._context = copy_context()
        self._waiting: deque[Execution] = deque()
        self._runners = 0  # tasks that no execution has kept: each takes the next one

    def put(self, execution: Execution) -> None:
        """Have the execution begin soon."""
        self._waiting.append(execution)
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
                execution = waiting.popleft()
                if execution.over:
                    continue
                if execution.activation.lease_end <= self._ticks():
                    self._lapse(execution)
                    continue
                execution.task = runner
                rest = self._begin(execution)
                if rest is not None:
                    break
            else:
                return
        finally:
            self._runners -= 1
            if waiting:  # the others need not wait: if one of them does, most of them may
                self._man(len(waiting) - self._runners)
        try:
            value = await rest
        except BaseException as error:
            if pressed(error):
                raise
            self._failed(execution, error)
        else:
            self._completed(execution, value)

    def _begin(self, execution: Execution) -> _Rest | None:
        """Run a step until it ends, or waits for the first time: the answer is what is left of it."""
        ask = execution.ask
        context = self._context.copy()
        context.run(ATTEMPT.set, execution.current)
        try:
            code = ask.step.function(*ask.args, **ask.kwargs)
            if code.__class__ is not CoroutineType:
                code = _awaited(code)
            awaits = context.run(code.send, None)
        except StopIteration as end:
            self._completed(execution, end.value)
        except BaseException as error:  # a step may raise anything; its worker must live
            if pressed(error):
                raise
            self._failed(execution, error)
        else:
            return _Rest(self, execution, context, code, awaits)
        return None


class _Rest:
    """A coroutine that waits for ``awaits``: when awaited, it goes on in its own context."""

    __slots__ = ("_awaits", "_code", "_context", "_execution", "_relay")

    def __init__(
        self, relay: Relay, execution: Execution, context: Context, code: Coroutine[Any, Any, Any], awaits: Any
    ) -> None:
        self._relay = relay
        self._execution = execution
        self._context = context
        self._code = code
        self._awaits = awaits

    def __await__(self) -> Generator[Any, Any, Any]:
        run, code, awaits = self._context.run, self._code, self._awaits
        execution, ticks = self._execution, self._relay._ticks
        try:
            while True:
                try:
                    sent = yield awaits
                    if execution.activation.lease_end <= ticks() and not execution.over:
                        self._relay._lapse(execution)
                        yield  # it has cancelled the task that we are in: that arrives here
                except BaseException as error:
                    awaits = run(code.throw, error)
                else:
                    awaits = run(code.send, sent)
        except StopIteration as end:
            return end.value


async def _awaited(awaitable: Any) -> Any:
    return await awaitable
