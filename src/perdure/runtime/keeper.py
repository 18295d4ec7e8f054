"""A keeper: a thread of the worker that has calls made in its cell, and replaces the cell when it must."""

from __future__ import annotations

import signal
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from perdure import limits
from perdure.errors import StepCrashed
from perdure.exhaustion import exhausted
from perdure.runtime.cell import Cell
from perdure.runtime.wire import Answer, Beat, Begun, Failed, Ready, Said

if TYPE_CHECKING:
    from perdure.runtime.cells import Cells


class HardCall:
    """One attempt for a cell; on the event loop ``begun``, ``heard`` (of progress) and ``ended`` are told of it.

    ``late`` says, in the keeper's thread, that it must not begin any more: its lease is over.
    """

    __slots__ = (
        "begun", "ended", "given_up", "hanging", "heard", "keeper", "late", "order", "ordered", "progress", "watch",
    )  # fmt: skip

    def __init__(
        self,
        order: bytes,
        begun: Callable[[], None],
        heard: Callable[[bytes], None],
        ended: Callable[[Answer | StepCrashed], None],
        late: Callable[[], bool] = bool,
    ) -> None:
        self.late = late
        self.order = order
        self.begun = begun
        self.heard = heard
        self.ended = ended
        self.given_up = False
        self.hanging = False
        self.ordered = False
        self.keeper: Keeper | None = None
        self.progress: bytes | None = None
        self.watch: Any = None


class NoCell:
    """The system refused a cell: that was no attempt, and the call is to be made later."""

    __slots__ = ("error", "resource")

    def __init__(self, resource: str, error: BaseException) -> None:
        self.resource = resource
        self.error = error


class Keeper:
    """Makes calls in its cell, which is started when there is none, and ended after whatever may have harmed it.

    The pool is told on its event loop: ``started`` of a cell, ``begun`` and ``heard`` of a call, ``ended`` with its
    answer, ``left`` when the thread ends.
    """

    def __init__(self, number: int, pool: Cells) -> None:
        self.cell: Cell | None = None
        self.calls: SimpleQueue[HardCall | None] = SimpleQueue()
        self._pool = pool
        self._post = pool.post
        pool.machine.start_thread(self._live, f"perdure cell {number}")

    def _live(self) -> None:
        try:
            while (call := self.calls.get()) is not None:
                answer = self._answer(call)
                self._post(self._pool.ended, self, call, answer)
                stopped = call.given_up and answer is not None
                spent = isinstance(answer, Failed) and answer.spent
                if stopped or spent or (self.cell is not None and self.cell.calls >= limits.CELL_CALLS):
                    self._end()
                del call, answer
            self._end()
            self._post(self._pool.left)
        except RuntimeError:
            self._end()  # the event loop is closed: nobody is left to hear it

    def _answer(self, call: HardCall) -> Answer | StepCrashed | NoCell | None:
        """Make a call, unless it was given up before; when it has crashed, its cell is gone."""
        answer: Answer | StepCrashed | None = None
        try:
            while answer is None:
                cell = self._open()
                if cell is None:
                    return self._died(call, before="could take up the step")
                call.ordered = True
                if call.given_up or call.late():
                    return None
                again = cell.calls > 0  # it may have died while nobody listened: then another one is asked
                answer = self._talk(cell, call, again=again)
        except Exception as error:  # whatever goes wrong here, the call is answered
            self._end()
            if not call.ordered and (resource := exhausted(error, spawning=True)) is not None:
                return NoCell(resource, error)
            return StepCrashed(f"no cell can be had: {type(error).__name__}: {error}. See to this machine.")
        return answer

    def _open(self) -> Cell | None:
        """The cell, ready to be asked; None if it died before it was."""
        if self.cell is not None and self.cell.dead:
            self._end()
        if self.cell is None:
            self.cell = Cell(self._pool.sources)
            self._post(self._pool.started)
            if not isinstance(said(self.cell), Ready):
                return None
        return self.cell

    def _talk(self, cell: Cell, call: HardCall, *, again: bool) -> Answer | StepCrashed | None:
        """Hear a call through to its answer; None if the cell died before it began and another should be asked."""
        cell.order(call.order)
        begun = False
        while True:
            match said(cell):
                case Begun():
                    begun = True
                    self._post(self._pool.begun, call)
                case Beat(progress):
                    if begun:
                        self._tell(call, bytes(progress))
                case Ready():
                    pass
                case None:
                    if again and not (begun or call.given_up or call.hanging):
                        self._end()
                        return None
                    return self._died(call, before="" if begun else "began the step")
                case answer:
                    return answer

    def _tell(self, call: HardCall, progress: bytes) -> None:
        """Pass a heartbeat on: one word at a time, however often a step beats."""
        told, call.progress = call.progress, progress
        if told is None:
            self._post(self._pool.heard, call)

    def _end(self) -> int:
        """End the cell, if there is one; its exit code."""
        cell, self.cell = self.cell, None
        return 0 if cell is None else cell.end()

    def _died(self, call: HardCall, *, before: str) -> StepCrashed:
        """What is known of the death of the cell, in the middle of a call or ``before`` it did something."""
        cell = self.cell
        code = self._end()
        if call.hanging:
            return StepCrashed(
                f"the child OS process did not begin within {limits.CELL_START_SECONDS:g} s and was killed: "
                "importing the modules of the application hangs or is slow. Make their import quick."
            )
        how = f"was killed by {_signal(-code)}" if code < 0 else f"ended with exit code {code}"
        text = f"the child OS process of the step {how}" + (f" before it {before}" if before else "")
        words = "" if cell is None else cell.last_words.decode(errors="replace").strip()
        if words:
            return StepCrashed(f"{text}. The last that it wrote to stderr:\n{words}")
        if code == -signal.SIGKILL:
            return StepCrashed(f"{text}: by somebody, or by the system for want of memory. Look into its log.")
        return StepCrashed(f"{text} and wrote nothing to stderr. Run the step's function by hand.")


def said(cell: Cell) -> Said | None:
    """What a cell says next; None when it has died, or when something else has written on the wire."""
    try:
        return cell.hear()
    except ValueError:
        return None


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
