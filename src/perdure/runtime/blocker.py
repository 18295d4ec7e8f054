"""The blocker: whose code has the event loop, read from its thread's stack, so that running a step costs nothing."""

from __future__ import annotations

import asyncio
import sys
import traceback
from types import FrameType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from perdure import limits
from perdure.authoring.presence import turn_running
from perdure.authoring.step import ATTEMPT
from perdure.kernel.failure import safe_text
from perdure.runtime.relay import Relay

if TYPE_CHECKING:
    from contextvars import Context

    from perdure.runtime.execution import Execution

_RUNNING = (Relay._run.__code__, Relay._begin.__code__)
_HANDLE = asyncio.Handle._run.__code__


class Blocker(Struct, frozen=True):
    """What has the loop: code of a ``process`` or (None) somebody else's; ``step`` with its place, if it is in one.

    ``deadline`` is that of the step's attempt by the loop's clock, ``timeout`` the seconds that it was given.
    """

    stack: str
    process: bytes | None = None
    step: str = ""
    timeout: float = 0.0
    deadline: float = 0.0


def found(thread: int, loop: asyncio.AbstractEventLoop) -> Blocker:
    """Who has the loop that runs in this thread; called from another one."""
    frame = sys._current_frames().get(thread)
    stack = "unknown" if frame is None else "".join(traceback.format_stack(frame))
    stack = safe_text(stack, limits.STACK_TEXT_BYTES, keep_end=True)
    process = turn_running(thread)
    if process is not None:
        return Blocker(stack, process)
    execution = _execution(frame) or _of_task(loop)
    if execution is None:
        return Blocker(stack)
    ask = execution.ask
    return Blocker(
        stack, execution.activation.process.id, f"{ask.name}:{ask.place}", ask.step.timeout, execution.deadline
    )


def _execution(frame: FrameType | None) -> Execution | None:
    """The execution whose code is on the stack: of the step itself, or of a task or callback that it has made."""
    while frame is not None:
        if frame.f_code in _RUNNING:
            found: Execution | None = frame.f_locals.get("execution")
            return found
        if frame.f_code is _HANDLE:
            handle = frame.f_locals.get("self")  # None when it has just been run: the thread does not wait for us
            given = None if handle is None else _of_context(handle._context)
            if given is not None:
                return given
        frame = frame.f_back
    return None


def _of_task(loop: asyncio.AbstractEventLoop) -> Execution | None:
    """The same where the event loop is not written in Python, and shows no frames of its own."""
    task: Any = asyncio.current_task(loop)
    return _of_context(task.get_context()) if task is not None and hasattr(task, "get_context") else None


def _of_context(context: Context) -> Execution | None:
    current = context.get(ATTEMPT)
    execution: Execution | None = getattr(current, "__self__", None)
    return execution
