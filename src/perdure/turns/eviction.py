"""The end of a process in memory: winding up after its code has returned, or eviction at any time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from perdure.kernel.names import id_text
from perdure.logs import logger
from perdure.turns import saga
from perdure.turns.current import unfinished
from perdure.turns.interrupt import pressed
from perdure.turns.renewal import renewal_in

if TYPE_CHECKING:
    from perdure.turns.bare_loop import TurnTask
    from perdure.turns.loop import TurnLoop

log = logger("process")

_CLOSE_TRIES = 100
_stubborn: list[Any] = []


def wind_up(loop: TurnLoop) -> bool:
    """After the workflow's return: cancel and await what remains; returns whether there is more to run in this turn.

    Tasks that a clean-up makes are left alone until the tasks that were cancelled before have ended.
    """
    if loop.tasks:
        pending = [task for task in loop.tasks if not task.done()]
        if any(task.asked_to_end for task in pending):
            return False
        if pending:
            for task in pending:
                task.asked_to_end = True
                task.cancel()
            return True
    if loop.generators:
        generators = unfinished(loop.generators)
        loop.generators.clear()
        if generators:
            loop.make_task(_close_all(loop, generators), ".end").asked_to_end = True
            return True
    if loop.saga is not None and not saga.settled(loop):
        return bool(loop.ready)
    _finish(loop)
    return False


async def _close_all(loop: TurnLoop, generators: list[Any]) -> None:
    """Let the clean-up of unfinished generators run, oldest first; it may await steps."""
    for generator in generators:
        try:
            await generator.aclose()
        except Exception as error:
            loop.call_exception_handler({"message": f"an error while closing {generator!r}", "exception": error})


def _finish(loop: TurnLoop) -> None:
    loop.finished = True
    root, loop.root = loop.root, None  # break the cycle with the loop: else only the collector could free both
    if root is None or root.cancelled():
        loop.cancelled = True
    elif (error := root.exception()) is not None:
        _note_end(loop, error, asked_to_cancel=root.asked_to_end)
    else:
        loop.result = root.result()
    if loop.open:
        _drop_unawaited(loop)
    if loop.tasks:
        _hear_failures(loop)
    if loop.timers.open:
        loop.timers.clear()
    if loop.troubles:
        for trouble in loop.troubles:
            log.error("process %s: %s", id_text(loop.process_id), trouble["message"], exc_info=trouble.get("exception"))
        loop.troubles.clear()


def _note_end(loop: TurnLoop, error: BaseException, *, asked_to_cancel: bool) -> None:
    renewal = renewal_in(error)
    if renewal is None:
        loop.error = error
        loop.unwanted = asked_to_cancel or bool(loop.late)
    else:
        loop.renewal = renewal.input


def _drop_unawaited(loop: TurnLoop) -> None:
    for ask in list(loop.open.values()):
        if ask.step.lasting:
            continue  # its on_parent_end says what becomes of it now
        ask.cancel()
        left = f"step {ask.name!r} at place {ask.place} was still open when the workflow returned: it is cancelled"
        loop.troubles.append({"message": left})


def _hear_failures(loop: TurnLoop) -> None:
    for task in loop.tasks:
        if task.failed_unheard:
            loop.troubles.append(
                {"message": f"{task.get_name()} failed and nobody awaited it", "exception": task.exception()}
            )
    loop.tasks.clear()


def evict(loop: TurnLoop) -> None:
    """End the code of a dead loop: its coroutines are closed, and all that they still ask for is dropped."""
    loop.ready.clear()
    asks = list(loop.open.values())
    loop.open.clear()
    for ask in asks:
        asyncio.Future.cancel(ask)
    root, loop.root = loop.root, None
    ended = [task for task in (*reversed(loop.tasks), root) if task is not None and not task.done()]
    for task in ended:
        close(task.get_coro())
    _free(ended)
    loop.tasks.clear()
    loop.generators.clear()
    loop.take_outputs()
    loop.timers.clear()
    loop.mailboxes.clear()
    loop.troubles.clear()
    saga.free(loop)


def _free(tasks: list[TurnTask]) -> None:
    """Break the cycles of each task with what it waits for, and with those who wait for it.

    Else only the collector could free them, which seldom looks at what has lived as long as a process waits.
    """
    for task in tasks:
        if (awaited := task.awaited) is not None:
            asyncio.Future.cancel(awaited)
        asyncio.Future.cancel(task)


def close(coroutine: Any) -> None:
    """Close a coroutine whose clean-up may await: each such await is refused, until the coroutine has ended."""
    for _ in range(_CLOSE_TRIES):
        try:
            coroutine.close()
        except BaseException as error:  # the process is evicted: nothing that its clean-up does or raises counts
            if pressed(error):
                raise
            if coroutine.cr_frame is None:
                return
        else:
            return
    # The coroutine catches everything for ever: to free it, even at the program's end, would only run it again.
    _stubborn.append(coroutine)
    with suppress(OSError, ImportError):  # for want of a descriptor: then it runs again, at that end
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(coroutine))
