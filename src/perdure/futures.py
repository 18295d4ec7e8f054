"""Futures: the answer of a call that takes a callback, as something to await."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
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
