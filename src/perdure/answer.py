"""An answer: what a door with a callback gives, as something to await."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


def to_future(future: asyncio.Future[Any]) -> Callable[[Any], None]:
    """A callback that settles ``future``: with the answer, or by raising it if it is an exception."""

    def answered(answer: Any) -> None:
        if future.done():
            return
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    return answered


def asked(door: Callable[[Any, Callable[[Any], None]], None], record: Any) -> asyncio.Future[Any]:
    """Hand ``record`` in at ``door``; the future gets its answer."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    door(record, to_future(future))
    return future
