"""Futures: the answer of a call that takes a callback, or of one that blocks, as something to await."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from threading import Thread
from typing import Any, TypeVar

from perdure.errors import PerdureError

T = TypeVar("T")

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
