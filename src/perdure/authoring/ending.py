"""The ending of a process in memory: winding up after its code has returned, or eviction at any time."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from perdure.kernel.names import id_text

if TYPE_CHECKING:
    from perdure.authoring.turn_loop import TurnLoop

log = logging.getLogger("perdure")

_STUBBORN: list[Any] = []
_CLOSE_TRIES = 100


def wind_up(loop: TurnLoop) -> bool:
    """After the workflow's return: cancel and await what remains; answers whether there is more to run in this turn.

    Tasks made by somebody's clean-up are left alone until those that were told to end have ended.
    """
    pending = [task for task in loop._tasks if not task.done()]
    if any(task.told for task in pending):
        return False
    if pending:
        for task in pending:
            task.told = True
            task.cancel()
        return True
    agens = [agen for agen in loop._agens if agen.ag_frame is not None]
    loop._agens.clear()
    if agens:
        loop.create_task(_close_all(agens), name="clean-up").told = True
        return True
    _finish(loop)
    return False


async def _close_all(agens: list[Any]) -> None:
    for agen in agens:
        await agen.aclose()


def _finish(loop: TurnLoop) -> None:
    loop.finished = True
    for ask in list(loop.open.values()):
        ask.cancel()
        loop.troubles.append({"message": f"step {ask.name!r} at place {ask.place} was asked for but never awaited"})
    loop.timers.clear()
    for task in loop._tasks:
        if task._log_traceback:  # type: ignore[attr-defined]
            loop.troubles.append({"message": "a task failed and nobody awaited it", "exception": task.exception()})
    for trouble in loop.troubles:
        error = trouble.get("exception")
        log.error("process %s: %s", id_text(loop.process_id), trouble["message"], exc_info=error)
    loop.troubles.clear()
    loop._tasks.clear()
    loop._ready.clear()


def evict(loop: TurnLoop) -> None:
    """End the code of a dead loop: its coroutines are closed, and whatever they still ask for is void."""
    loop._ready.clear()
    asks = list(loop.open.values())
    loop.open.clear()
    for ask in asks:
        asyncio.Future.cancel(ask)
    for task in (*reversed(loop._tasks), loop._root):
        if task is not None and not task.done():
            close(task.get_coro())
    loop.asks.clear()
    loop.dropped.clear()
    loop.timers.clear()
    loop.mailboxes.clear()
    loop.troubles.clear()
    loop._tasks.clear()
    loop._agens.clear()


def close(coroutine: Any) -> None:
    """Close a coroutine whose clean-up may await: each such await is refused until it has ended."""
    for _ in range(_CLOSE_TRIES):
        try:
            coroutine.close()
        except KeyboardInterrupt:
            raise
        except BaseException:
            if coroutine.cr_frame is None:
                return
        else:
            return
    _STUBBORN.append(coroutine)
