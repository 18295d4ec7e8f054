"""The failure log: each process or step that went wrong is logged once, with its stack, and its process as fields."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from perdure.kernel.child import is_task
from perdure.kernel.failure import Failure
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status
from perdure.logs import Confided, logger

if TYPE_CHECKING:
    from perdure.turns.ask import Ask

processes = logger("process")
steps = logger("step")


def fields(process: Process, **more: Any) -> dict[str, Any]:
    """The attributes of a log record about a process, for filters and structured formats."""
    return {"process_id": id_text(process.id), "process_kind": process.kind, "process_key": process.key, **more}


def name(process: Process) -> str:
    """A process as a person knows it: its kind, its key if it has one, and its id."""
    return f"{process.kind} {'' if process.key is None else f'{process.key} '}({id_text(process.id)})"


def ended(process: Process) -> None:
    """Log that a process has failed or is broken, once that is stored. A failed task is logged as its step only."""
    if process.status is Status.FAILED and not is_task(process.kind):
        _tell(process, "process %s has failed: %s%s\n%s")
    elif process.status is Status.BROKEN:
        _tell(process, "process %s is broken and waits for a person; `perdure show` says what may be done: %s%s\n%s")


def workflow_failed(process: Process, failure: Failure, seconds: float) -> None:
    """The code of a process has failed, and is tried again in so many seconds."""
    text = "process %s has failed at attempt %d; the next one begins in %.1f s: %s%s\n%s"
    processes.warning(text, name(process), failure.attempts, seconds, *_said(failure), extra=fields(process))


def _tell(process: Process, text: str) -> None:
    failure = Failure.shown(process.error or b"")
    processes.error(text, name(process), *_said(failure), extra=fields(process))


def attempt_failed(process: Process, ask: Ask[Any], failure: Failure, seconds: float | None) -> None:
    """An attempt of a step has failed: the next one begins in so many seconds, or there is none.

    The last one is an error, unless it is an answer that the step has declared: the workflow reckons with that.
    """
    extra = fields(process, step=ask.name, attempt=failure.attempts)
    if seconds is None:
        text = "step %s of process %s has failed at its last attempt (%d): %s%s\n%s"
        level = logging.WARNING if failure.declared else logging.ERROR
        steps.log(level, text, ask.name, name(process), failure.attempts, *_said(failure), extra=extra)
    else:
        text = "step %s of process %s has failed at attempt %d; the next one begins in %.1f s: %s%s"
        steps.info(text, ask.name, name(process), failure.attempts, seconds, *_said(failure)[:2], extra=extra)


def _said(failure: Failure) -> tuple[str, Confided, Confided]:
    """The type of an error, its text, and its stack."""
    return failure.type, Confided(f": {failure.message}" if failure.message else ""), Confided(failure.trace.rstrip())
