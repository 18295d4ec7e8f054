"""The current turn: which process's turn a thread is in, and how a thread enters and leaves a turn."""

from __future__ import annotations

import asyncio
import gc
import sys
from asyncio import AbstractEventLoop, _get_running_loop, _set_running_loop
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any

from perdure.errors import WorkflowMisuse
from perdure.turns.bare_loop import SandboxLoop

if TYPE_CHECKING:
    from perdure.turns.asking import AskingLoop

turns: dict[int, AskingLoop] = {}
"""The loop whose turn is running, by thread. Hot paths read it directly; empty means that no thread is in a turn."""
_stages: dict[int, AbstractEventLoop | None] = {}
"""The outer loop of each thread that is inside :func:`staged`."""

Before = tuple[AbstractEventLoop | None, "asyncio.Task[Any] | None", Any, bool]
"""What was there when a thread entered a turn: the running loop, its current task, generator hooks, the collector."""


def current_turn(thread: int | None = None) -> AskingLoop | None:
    """The loop whose turn is running in a thread (its ident; by default the calling one), or None."""
    return turns.get(get_ident() if thread is None else thread)


def turn_for(verb: str) -> AskingLoop:
    """The loop whose turn is running in the calling thread; raises WorkflowMisuse if the verb is called elsewhere."""
    loop = current_turn()
    if loop is None:
        raise WorkflowMisuse(f"{verb}() belongs in a workflow, and none is running here. Call it from workflow code.")
    return loop


def turn_running(thread: int) -> bytes | None:
    """The id of the process whose turn is running in that thread, or None; readable from every thread."""
    loop = turns.get(thread)
    return None if loop is None else loop.process_id


def enter(loop: AskingLoop) -> Before | int:
    """Make ``loop`` the running loop of this thread; returns what was before, or the thread inside :func:`staged`."""
    thread = get_ident()
    if thread in _stages:
        if thread in turns:
            raise RuntimeError("a turn cannot run inside a turn")
        turns[thread] = loop
        _set_running_loop(loop)  # type: ignore[arg-type]
        return thread
    before = _set_aside()
    turns[thread] = loop
    _set_running_loop(loop)  # type: ignore[arg-type]
    return before


def _set_aside() -> Before:
    """Take the outer loop's current task, the generator hooks and the collector out of the way."""
    outer = _get_running_loop()
    if isinstance(outer, SandboxLoop):
        raise RuntimeError("a turn cannot run inside a turn")
    task = None if outer is None else asyncio.current_task(outer)
    if outer is not None and task is not None:
        _leave_task(outer, task)
    before = outer, task, sys.get_asyncgen_hooks(), gc.isenabled()
    sys.set_asyncgen_hooks(_generator_begun, _generator_dropped)
    gc.disable()  # the collector never schedules into a turn (rule 20)
    return before


def leave(before: Before | int) -> None:
    """Leave the turn; outside of :func:`staged` put back what was before."""
    if before.__class__ is int:  # the thread: cheaper than isinstance(), and every turn comes by here
        del turns[before]
        _set_running_loop(_stages[before])
    else:
        turns.pop(get_ident(), None)
        _put_back(before)  # type: ignore[arg-type]


@contextmanager
def staged() -> Iterator[None]:
    """Run many turns in a row: what is set aside for a turn is so once for all of them, and put back at the end.

    Between two turns the engine's own code may run, and finds the outer loop running. It has no current task then.
    """
    thread = get_ident()
    before = _set_aside()
    _stages[thread] = before[0]
    try:
        yield
    finally:
        del _stages[thread]
        _put_back(before)


def _put_back(before: Before) -> None:
    outer, task, hooks, collecting = before
    _set_running_loop(outer)
    if collecting:
        gc.enable()
    sys.set_asyncgen_hooks(*hooks)
    if outer is not None and task is not None:
        _enter_task(outer, task)


def _generator_begun(generator: Any) -> None:
    """Keep the generator, so that neither its end nor its clean-up depends on the collector."""
    loop = current_turn()
    if loop is not None:
        begun = loop.generators
        if not len(begun) & (len(begun) - 1):  # at each power of two: a long process begins any number of them
            begun[:] = unfinished(begun)
        begun.append(generator)


def unfinished(generators: Iterable[Any]) -> list[Any]:
    """Those of these asynchronous generators that have not ended, in their order."""
    return [generator for generator in generators if generator.ag_frame is not None]


def _generator_dropped(generator: Any) -> None:
    """An unfinished generator was dropped: the collector schedules nothing into a turn (rule 20)."""
