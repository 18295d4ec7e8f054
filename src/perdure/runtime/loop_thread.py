"""A thread with an event loop, on which other threads run coroutines; none waits for one that has ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, TypeVar

from perdure import limits
from perdure.errors import PerdureError, StoreUnavailable
from perdure.logs import logger
from perdure.runtime import os_process

T = TypeVar("T")

log = logger("worker")


class LoopThread:
    """Runs coroutines until it is told that it is ``over``, whatever code in their tasks may raise.

    Raises StoreUnavailable if the system refuses the thread. If it ends all the same, ``failure`` is why.
    """

    def __init__(self, name: str) -> None:
        self.failure: BaseException | None = None
        self.loop, self.over = asyncio.new_event_loop(), asyncio.Event()
        self._asked: dict[Future[Any], Coroutine[Any, Any, Any]] = {}
        # A daemon: a program may end without closing what runs here.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except (RuntimeError, MemoryError) as error:
            self.loop.close()
            raise StoreUnavailable(
                f"the system refuses this program a thread for its engine ({error or type(error).__name__}); raise the "
                "limits on threads and memory, then call again"
            ) from error

    def ask(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine, from another thread; its answer is a PerdureError if this thread ends before it has one."""
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except RuntimeError as error:  # the event loop is closed
            coroutine.close()
            raise gone(self.failure or error) from None
        self._asked[future] = coroutine
        future.add_done_callback(self._asked.pop)
        if self.failure is not None:  # the thread has ended just now, and does not hear this call
            self._answer_all(self.failure)
        return future

    def join(self) -> None:
        """Wait until the thread has ended; one that does not end within the grace is left behind."""
        self._thread.join(limits.END_GRACE_SECONDS)
        if self._thread.is_alive():
            log.warning("a task or a call hangs in the thread %r, which is left behind", self._thread.name)

    def _run(self) -> None:
        try:
            os_process.run(self._until_over(), lambda: self.loop)
        except BaseException as error:
            log.exception("the thread of an engine has ended: its steps have stopped, and each call says so")
            self.failure = error
            self._answer_all(error)

    async def _until_over(self) -> None:
        await self.over.wait()

    def _answer_all(self, failure: BaseException) -> None:
        """Let all that wait hear that the thread has ended."""
        for future, coroutine in list(self._asked.items()):
            with suppress(InvalidStateError):  # it has its answer
                future.set_exception(gone(failure))
            if getcoroutinestate(coroutine) == CORO_CREATED:
                coroutine.close()  # it will never begin


def gone(failure: BaseException) -> PerdureError:
    """The error of a call that the thread does not answer."""
    return PerdureError(
        f"the thread of this engine has ended ({failure!r:.200}), and the log says where. Whether a call under way "
        "took effect is unknown: make another engine, and ask again"
    )
