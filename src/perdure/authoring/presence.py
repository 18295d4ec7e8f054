"""Presence: which process's turn a thread is in, and how a thread enters and leaves a turn."""

from __future__ import annotations

import asyncio
import gc
import sys
from asyncio import AbstractEventLoop, _get_running_loop, _set_running_loop
from asyncio.tasks import _enter_task, _leave_task
from threading import get_ident
from typing import TYPE_CHECKING, Any, cast

from perdure.authoring.closed_loop import ClosedLoop

if TYPE_CHECKING:
    from perdure.authoring.turn_loop import TurnLoop

_turns: dict[int, TurnLoop] = {}

Before = tuple[AbstractEventLoop | None, "asyncio.Task[Any] | None", Any, bool]
"""What was there when a thread entered a turn: the running loop, its current task, generator hooks, the collector."""


def current_turn(thread: int | None = None) -> TurnLoop | None:
    """The loop whose turn is running in a thread (its ident; by default the calling one), or None."""
    return _turns.get(get_ident() if thread is None else thread)


def turn_running(thread: int) -> bytes | None:
    """The id of the process whose turn is running in that thread, or None; readable from every thread."""
    loop = _turns.get(thread)
    return None if loop is None else loop.process_id


def enter(loop: TurnLoop) -> Before:
    """Make ``loop`` the running loop of this thread; answers what was before."""
    outer = _get_running_loop()
    if isinstance(outer, ClosedLoop):
        raise RuntimeError("a turn cannot run inside a turn")
    task = None if outer is None else asyncio.current_task(outer)
    if task is not None:
        _leave_task(cast(AbstractEventLoop, outer), task)
    before = outer, task, sys.get_asyncgen_hooks(), gc.isenabled()
    sys.set_asyncgen_hooks(_generator_begun, _generator_dropped)
    gc.disable()  # the collector never schedules into a turn (rule 20)
    _turns[get_ident()] = loop
    _set_running_loop(cast(AbstractEventLoop, loop))
    return before


def leave(before: Before) -> None:
    """Put back what was before."""
    outer, task, hooks, collecting = before
    _set_running_loop(outer)
    _turns.pop(get_ident(), None)
    if collecting:
        gc.enable()
    sys.set_asyncgen_hooks(*hooks)
    if task is not None:
        _enter_task(cast(AbstractEventLoop, outer), task)


def _generator_begun(generator: Any) -> None:
    """Keep it, so that neither its end nor its clean-up depends on the collector."""
    loop = current_turn()
    if loop is not None:
        loop.generators.append(generator)


def _generator_dropped(generator: Any) -> None:
    """An unfinished generator was dropped: the collector schedules nothing into a turn (rule 20)."""
