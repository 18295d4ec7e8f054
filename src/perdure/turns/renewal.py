"""A renewal: the end of a run that is the beginning of the next one, with new arguments and an empty history.

Another attempt of a workflow that has failed begins with the old arguments, at its time.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NoReturn

from perdure.errors import WorkflowMisuse
from perdure.turns.current import current_turn

if TYPE_CHECKING:
    from perdure.kernel.failure import Failure
    from perdure.turns.asking import AskingLoop


class Renewal(BaseException):
    """Leaves the workflow's code when it continues as new; ``input`` is the payload of the new arguments."""

    def __init__(self, input: bytes) -> None:
        super().__init__("the workflow continues as new; do not catch this")
        self.input = input


class Broken(BaseException):
    """Leaves the code of a process that cannot go on until a person has put right what is wrong: its ``failure``."""

    def __init__(self, failure: Failure) -> None:
        super().__init__("the process cannot go on; do not catch this")
        self.failure = failure


def continue_as_new(*args: Any, **kwargs: Any) -> NoReturn:
    """End this run and begin the next one of the same process, with these arguments and an empty history.

    It leaves the workflow like a return: what still runs in it is cancelled first, nothing is undone. Signals not
    received are offered to the new run. Raises InvalidInput, PayloadError, WorkflowMisuse.
    """
    loop = current_turn()
    if loop is None or loop.shape is None:
        raise WorkflowMisuse(
            "continue_as_new() belongs in a workflow, and none is running here. Call it from workflow code."
        )
    if loop.machine is not None:
        raise WorkflowMisuse("continue_as_new() is for workflows: a machine begins its history anew by itself.")
    raise Renewal(loop.shape.encode(args, kwargs))


def renewal_in(error: BaseException | None) -> Renewal | None:
    """The renewal, if this error is one, also if a task group has wrapped it alone; else None."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, Renewal) else None


NEXT_ATTEMPT = ".attempt"
"""The place of the timer for which another attempt of a workflow waits; no timer of the code has such a place."""


async def at_its_time(
    loop: AskingLoop, due: int, function: Callable[..., Coroutine[Any, Any, Any]], /, *args: Any, **kwargs: Any
) -> Any:
    """Run the function of a workflow from ``due`` (microseconds) on."""
    time = loop.create_future()
    loop.open_timer(due, NEXT_ATTEMPT, _come, (time,))
    await time
    return await function(*args, **kwargs)


def _come(time: Future[None]) -> None:
    if not time.done():  # it was cancelled in the turn in which the timer fires
        time.set_result(None)


def left_over(loop: AskingLoop) -> list[int]:
    """Numbers of the letters that the history of an ended run has, and its code has not received, or not answered."""
    return sorted(number for box in loop.mailboxes.values() for number in box.left)
