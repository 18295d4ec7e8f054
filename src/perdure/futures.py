"""Futures: the answer of a call that takes a callback, or of one that blocks, as something to await."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from threading import Condition, Thread
from typing import Any, ParamSpec, TypeVar

from perdure.errors import PerdureError

P = ParamSpec("P")
T = TypeVar("T")

IDLE_SECONDS = 10.0
"""A thread that has no call for so long ends."""

OnAnswer = Callable[[Any], None]
"""Called with the answer to a record, or with the exception if it can never be applied."""


def to_future(future: asyncio.Future[Any]) -> OnAnswer:
    """A callback that settles ``future``: with the answer, or by raising it if it is an exception."""

    def answered(answer: Any) -> None:
        if future.done():
            return
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    return answered


def asked(door: Callable[[Any, OnAnswer], None], record: Any) -> asyncio.Future[Any]:
    """Pass ``record`` to ``door``; the future gets its answer."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    door(record, to_future(future))
    return future


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The answer of a coroutine that never waits, since everything that it calls blocks."""
    try:
        work.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    raise PerdureError("a coroutine that must not wait has waited; this is a defect, please report it")


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """The answer of a blocking call to another system, made in a thread of its own.

    The threads of the event loop are few: one call that hangs in them keeps all others waiting. A caller that waits no
    more leaves the thread behind; it ends with the call, or with the program. Raises RuntimeError if the system refuses
    a thread.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    settle, context = to_future(future), copy_context()

    def call() -> None:
        answer: Any
        try:
            answer = context.run(function, *args)
        except BaseException as error:
            answer = error
        try:
            loop.call_soon_threadsafe(settle, answer)
        except RuntimeError:
            pass  # the event loop is closed: nobody waits

    Thread(target=call, name="perdure call", daemon=True).start()
    return await future


async def looked_up(host: str, port: int) -> list[str]:
    """The addresses of a host, without the threads of the event loop; raises what ``socket.getaddrinfo`` raises."""
    ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = ask(flags=socket.AI_NUMERICHOST)
    except socket.gaierror:  # it is no address: the name is looked up, which may take long
        found = await in_thread(ask)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


class DaemonThreads(ThreadPoolExecutor):
    """Makes calls in up to ``most`` daemon threads: one that hangs keeps no program from its end.

    The threads of Python's own executors do, and these executors are dead as soon as the main thread has ended.
    """

    def __init__(self, most: int, name: str) -> None:
        # Python's own constructor is not called: only the type is needed, for `loop.set_default_executor`.
        self._most = most
        self._name = name
        self._ready = Condition()
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._number = self._waiting = 0  # of the threads, and of those that have no call
        self._over = False

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Make the call as soon as there is a thread for it; raises RuntimeError if the system refuses one."""
        future: Future[T] = Future()
        with self._ready:
            if self._over:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._calls.append((future, partial(function, *args, **kwargs)))
            if self._waiting >= len(self._calls):
                self._ready.notify()
            elif self._number < self._most:
                self._grow()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Begin no call from now on, and wait for none: each thread ends after the call that it is in."""
        with self._ready:
            self._over = True
            calls = [future for future, _ in self._calls]
            self._calls.clear()
            self._ready.notify_all()
        for future in calls:
            future.cancel()

    def _grow(self) -> None:
        thread = Thread(target=self._live, name=f"{self._name} {self._number + 1}", daemon=True)
        try:
            thread.start()
        except BaseException:
            self._calls.pop()
            raise
        self._number += 1

    def _live(self) -> None:
        while (call := self._next()) is not None:
            _make(*call)
            del call

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Wait for the next call; None if the thread is to end."""
        with self._ready:
            self._waiting += 1
            while not (self._calls or self._over) and self._ready.wait(IDLE_SECONDS):
                pass
            self._waiting -= 1
            if self._calls:
                return self._calls.popleft()
            self._number -= 1
            return None


def _make(future: Future[T], call: Callable[[], T]) -> None:
    """Make a call, unless its caller waits no more; whatever it raises is its answer."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
    del future  # an error's traceback holds this frame
