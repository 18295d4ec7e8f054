"""A task: a queued step as the worker of its queue runs it, a process whose workflow asks for that one step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import json

from perdure.authoring.queue import Task, steps_named
from perdure.authoring.workflow import Workflow
from perdure.errors import PayloadError, StepError, UnknownKind
from perdure.kernel.call_shape import CallShape
from perdure.kernel.child import is_task, queue_kind
from perdure.kernel.failure import Failure
from perdure.kernel.payload import encode
from perdure.kernel.process import Process
from perdure.kernel.stored import MALFORMED, why_undecodable
from perdure.limits import PAYLOAD_BYTES
from perdure.logs import logger
from perdure.turns.verbs import receive

if TYPE_CHECKING:
    from perdure.authoring.step import Step

log = logger("step")

LATE_ANSWER = "late answer"
"""The signal by which an attempt that was given up sends its result to its task."""


class QueueWork(Workflow[Any, Any]):
    """What a worker that serves a queue does with a task: the workflow of one step, which no program defines."""

    def __init__(self, queue: str, steps: Mapping[str, Step[Any, Any]]) -> None:
        self.queue = queue
        self.at_most: int | None = None
        self.function = perform  # type: ignore[assignment]  # it is never called by its name
        self.name = queue_kind(queue)
        self.version = ""
        self.idle = self.deadline = None
        self.shape = TaskShape(steps)

    def __repr__(self) -> str:
        return f"<queue {self.queue}>"

    def failure(self, error: BaseException) -> Failure:
        """The failure of a task: that of its step, as if it had run in its parent."""
        found = error.failure if isinstance(error, StepError) else None
        return found if isinstance(found, Failure) else Failure.of(error)


async def perform(step: Any, args: list[Any], kwargs: dict[str, Any], first: bool = False) -> Any:
    """Ask for the step as an ordinary one, here; or take the answer of an earlier attempt, if that comes ``first``."""
    if not first:
        return await step(*args, **kwargs)
    asked, late = asyncio.ensure_future(step(*args, **kwargs)), asyncio.ensure_future(receive(LATE_ANSWER))
    try:
        await asyncio.wait((asked, late), return_when=asyncio.FIRST_COMPLETED)
        return asked.result() if asked.done() else late.result()
    finally:
        asked.cancel()
        late.cancel()


class TaskShape(CallShape):
    """How a task's input becomes the call of its step, which this program defines; ``steps`` are preferred by name."""

    def __init__(self, steps: Mapping[str, Step[Any, Any]]) -> None:
        super().__init__(perform)
        self.steps = steps
        self._taken: set[str] = set()

    def decode(self, raw: bytes, *, ours: bool = False) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of :func:`perform`; raises UnknownKind if it cannot be known here which step is meant."""
        task = task_of(raw)
        step = self._step(task)
        here = step.here(None if task.retry is None else dict(task.retry), task.timeout, task.once)
        args, kwargs = step.shape.decode(bytes(task.call))
        return [here, args, kwargs, task.first], {}

    def _step(self, task: Task) -> Step[Any, Any]:
        """The very step that was asked for; else the only one of its name, since it may have been moved."""
        known = steps_named(task.step)
        for step in known:
            if step.definition == task.definition:
                return step
        own = self.steps.get(task.step)
        if own is None and len(known) != 1:
            raise UnknownKind(_unknown(task, known))
        step = own or known[0]
        if task.definition not in ("", *self._taken):
            self._taken.add(task.definition)
            log.warning(
                "tasks that ask for %s are run by %s, which has that name here. "
                "If it was not just moved, give one of them another name with @step(name=...)",
                task.definition,
                step.definition,
            )
        return step

    def encode_result(self, value: Any, *, limit: int = PAYLOAD_BYTES) -> bytes:
        """The payload of the step's result, which the step's own shape has checked."""
        return encode(value, limit=limit, what="the result of the step")


def _unknown(task: Task, known: list[Step[Any, Any]]) -> str:
    """Why it cannot be known which step is meant, and what to do."""
    if not known:
        return (
            f"no step {task.step!r} is known to the worker that serves its queue. Let that worker import the "
            "module that defines it"
        )
    meant = f"is {task.definition}" if task.definition else "was not recorded"
    return (
        f"of steps called {task.step!r} the worker that serves its queue knows "
        f"{' and '.join(step.definition for step in known)}, and the one asked for {meant}. Let that worker import the "
        "module that defines it, or give one of them another name with @step(name=...)"
    )


def accepts_first(process: Process) -> bool:
    """Whether this is a task that takes the first answer of any of its attempts."""
    return _told(process, lambda task: task.first)


def may_end_late(process: Process) -> bool:
    """Whether this is a task whose running attempt may still finish after its total time is over."""
    return _told(process, lambda task: not task.force)


def _told(process: Process, question: Callable[[Task], bool]) -> bool:
    if not is_task(process.kind) or why_undecodable(process.input) is not None:
        return False
    try:
        return question(task_of(process.input))
    except PayloadError:
        return False


_decode = json.Decoder(Task).decode


def task_of(raw: bytes) -> Task:
    """The task that a payload holds; raises PayloadError."""
    try:
        return _decode(raw)
    except MALFORMED as error:
        raise PayloadError(
            f"the input of a task cannot be read: {error}. Terminate it and ask for it again."
        ) from error
