"""Loop-bound objects: a lock, an event or a queue of asyncio belongs to the one process in whose turn it was made.

A turn may use none that was made elsewhere. If two processes shared one, the second would hang: its wake-up would
happen in a turn of the first, which does not record it. An object that is older than the turn loop (a global of a
module) keeps its state when a process is evicted, so that the replay would find another state than the code had before.
Asyncio itself notices only some of this, and only where a task has to wait. So such objects are bound to the loop in
which they are made, and each use in a turn is checked against it. Outside of turns nothing changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from threading import get_ident
from typing import Any

from perdure.errors import WorkflowMisuse
from perdure.turns.current import turns

_QUEUE = "empty full get get_nowait join put put_nowait qsize shutdown task_done"
GUARDED: dict[type[Any], str] = {
    asyncio.Lock: "acquire locked release",
    asyncio.Event: "clear is_set set wait",
    asyncio.Condition: "notify notify_all wait wait_for",
    asyncio.Semaphore: "acquire locked release",
    asyncio.BoundedSemaphore: "release",
    asyncio.Queue: _QUEUE,
    asyncio.Barrier: "abort reset wait",
}
"""What is bound to an event loop, with the methods that read or change its state."""


def guard() -> None:
    """Guard the classes of asyncio, once for the whole OS process."""
    for kind, names in GUARDED.items():
        if "__init__" in vars(kind):
            kind.__init__ = _binding(kind.__init__)
        for name in names.split():
            if name in vars(kind):
                setattr(kind, name, _guarded(vars(kind)[name]))


def _binding(init: Callable[..., None]) -> Callable[..., None]:
    """Bind an object to the turn loop in whose turn it is made; asyncio binds others when a task first waits."""

    @wraps(init)
    def bind(self: Any, *args: Any, **kwargs: Any) -> None:
        if turns and (loop := turns.get(get_ident())) is not None:
            self._loop = loop
        init(self, *args, **kwargs)

    return bind


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def use(self: Any, *args: Any, **kwargs: Any) -> Any:
        if turns and (loop := turns.get(get_ident())) is not None and self._loop is not loop and not loop.dead:
            raise _refusal(self)
        return method(self, *args, **kwargs)

    return use


def _refusal(used: Any) -> WorkflowMisuse:
    name = type(used).__name__
    return WorkflowMisuse(
        f"workflow code used an asyncio.{name} that was not made by this process: the next process that waits for it "
        f"would hang, and a replay would find it in another state. Make the {name} inside the workflow. What processes "
        "share must be durable: a queue with concurrency=1 for their steps, or signals and calls between them."
    )
