"""The life of a machine: its methods run one after another, and the fields are kept as each of them leaves them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Raw, json
from msgspec.structs import replace

from perdure import limits
from perdure.authoring.machine.actions import Refusal
from perdure.authoring.method import RepairMethod
from perdure.clock import microseconds
from perdure.errors import HistoryMisfit, PayloadError, WorkflowMisuse
from perdure.kernel.checkpoint import Checkpoint, Repair, TimerChange, parted, written
from perdure.kernel.failure import Failure
from perdure.kernel.names import id_text
from perdure.kernel.notice import SIGNAL
from perdure.kernel.policy import ANY
from perdure.kernel.process import Process
from perdure.logs import logger
from perdure.turns.arrivals import Arrivals
from perdure.turns.current import turn_for
from perdure.turns.mailbox import Call
from perdure.turns.renewal import Broken, Renewal
from perdure.turns.saga import forgive

if TYPE_CHECKING:
    from perdure.authoring.machine.definition import MachineWorkflow
    from perdure.authoring.method import Method
    from perdure.turns.asking import AskingLoop

log = logger("process")


class Life:
    """One machine in memory. ``acting`` says that one of its methods runs.

    ``method`` is the number of the wait that is under way, with the method that follows it; ``letter`` the inbox number
    of what has called that method, and ``asked`` says that its sender waits. ``where`` names the part of the method
    that runs, if it has any. ``due`` is when the timer fires; with ``removal`` it removes the machine. Once that is
    under way the machine is ``closed``: it hears nothing more, until it is ``gone``. ``changes`` are the timers that
    were replaced or cancelled, to be noted in the history. ``state`` is the one of a flow in which steps are asked for,
    ``once`` says that these run at most once, ``revival_delay`` when they go on after the loss of their worker, and
    ``keep_arguments`` that their arguments are kept. ``context`` is that of the method which has set the timer.
    ``misfit`` says that newer code has stored the fields, in a form that this class cannot read.
    """

    def __init__(self, kind: MachineWorkflow, process: Process) -> None:
        self._kind = kind
        self._run = process.run
        self._id = process.id
        self._strange: set[str] = set()
        self._state = process.state
        self._turns = -1  # the turn of a process' first run of code has the number 0
        self._entity: Any = None
        self._fields = b""
        self._unknown: dict[str, Raw] = {}
        self._unsaved = False
        self._action = ""
        self._due: int | None = None
        self._removal = False
        self._closed = False
        self._over = False
        self._result: Any = None
        self._error: Exception | None = None
        self.acting = False
        self.asked = False
        self.where = ""
        self.state = ANY
        self.once = False
        self.revival_delay: float | None = None
        self.keep_arguments = False
        self.method = 0
        self.letter = 0
        self.due: int | None = None
        self.context: str | None = None
        self.removal = False
        self.closed = False
        self.gone = False
        self.misfit: HistoryMisfit | None = None
        self.changes: list[TimerChange] = []

    def replayed(self, runs: int, turns: int) -> None:
        """Note, after a replay, how many turns the history has and how often the code has run.

        Raises HistoryMisfit if newer code has stored the fields: this class would lose some of them.
        """
        if self.misfit is not None:
            raise self.misfit
        self._turns = turns - runs

    @property
    def passive(self) -> bool:
        """Whether the machine leaves memory as soon as it only waits."""
        return self._entity is not None and self._kind.is_passive(self._entity)

    def knows(self, name: str) -> bool:
        """Whether the class has a method of that name, to be called or told."""
        return name in self._kind.letters

    def without(self, name: str) -> str:
        """What is said of a name that it does not know."""
        return self._kind.without(name)

    def warn(self, name: str, text: str) -> None:
        """Write to the log, once for each name, that a signal of that name waits."""
        if name not in self._strange:
            self._strange.add(name)
            log.warning("a signal waits in the inbox of process %s: %s", id_text(self._id), text)

    def act(
        self,
        action: str,
        *,
        due: int | None = None,
        end: bool = False,
        result: Any = None,
        error: Exception | None = None,
        removal: bool = False,
        closed: bool = False,
    ) -> None:
        """Take the one action of the method that runs; raises WorkflowMisuse if it has taken one before."""
        if self._action:
            raise WorkflowMisuse(
                f"machine.{action}() after machine.{self._action}(): a method takes one action. Choose one of them."
            )
        if action in ("schedule", "run_now") and self._kind.timer is None:
            raise WorkflowMisuse(f"machine.{action}() needs a method marked @machine.timer, and {self._kind} has none.")
        self._action, self._due, self._over, self._result, self._error = action, due, end, result, error
        self._removal, self._closed = removal, closed

    async def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the machine to its end; ``args`` are those of its beginning."""
        loop = turn_for("machine")
        arrivals = Arrivals(loop, self._kind.letters)
        stood, self._fields = (None, b"") if self._state is None else parted(self._state)
        if stood is None or not stood.method:  # it begins, or its beginning has failed
            self._entity = self._kind.blank()
            loop.open_branch(0)
            await self._call(loop, self._kind.init, args, kwargs)
        else:
            repair = self._wake(loop, stood, args, kwargs)
            if repair is not None:
                await self._repair(loop, repair)
        while not self._over:
            self.method += 1
            loop.open_branch(self.method)
            if self._is_long(loop):
                self._fold(loop, args, kwargs)
            if self.closed:
                arrivals = Arrivals(loop, ())
            arrival = await arrivals.next(loop, self.due)
            loop.context = self.context if arrival is None else loop.take_context(arrival[1][1])
            if arrival is None:
                await self._on_time(loop)
            else:
                box, (letter, number, asked, _) = arrival
                call: Call[Any] = Call(loop, box, number if asked else 0, letter)
                self.letter = number
                await self._answer(loop, self._kind.methods[box.name], call, letter)
                self.letter = 0
        self._save(loop)
        if self._error is not None:
            raise self._error
        return self._result

    # -- methods -----------------------------------------------------------------------------------------------------

    async def _on_time(self, loop: AskingLoop) -> None:
        """Do what the time was set for that has come."""
        if self._kind.timer is None and not (self.closed or self.removal):  # new code has none, and better code may
            text = f"the time has come that was set for the method of {self._kind} marked @machine.timer: it has none"
            raise Broken(Failure(type="NoSuchMethod", message=text))
        self.due = None
        if self.closed:
            self._over = self.gone = True
        elif self.removal:
            self._close(loop)
            self._ended(loop)
        else:
            await self._call(loop, self._kind.timer, (), {})

    async def _answer(self, loop: AskingLoop, method: Method[..., Any], call: Call[Any], letter: bytes) -> None:
        """Run the method that a call or a signal asks for."""
        try:
            args, kwargs = _arguments(method, letter)
        except PayloadError as error:
            if call.asked:
                call.answer(error)
            else:
                log.warning("%r passes over a signal %r that does not fit: %s", self._kind, method.name, error)
            self._ended(loop)
            return
        await self._call(loop, method, args, kwargs, call)

    async def _repair(self, loop: AskingLoop, repair: Repair) -> None:
        """Run the method that a person has chosen, at the time at which that was."""
        self.method += 1
        loop.open_branch(self.method)
        loop.now = max(loop.now, repair.at)
        method = self._kind.methods.get(repair.method)
        if not isinstance(method, RepairMethod):
            text = f"{self._kind} has no method {repair.method!r} marked @machine.repair"
            raise Broken(Failure(type="NoSuchMethod", message=text))
        try:
            args, kwargs = method.shape.decode(bytes(repair.call))
        except PayloadError as error:
            raise Broken(Failure.of(error)) from error
        if repair.timer and not self._kind.done_in:  # a flow keeps its times itself, and meets the one that has come
            self.due = None
        await self._call(loop, method, args, kwargs)

    async def _call(
        self,
        loop: AskingLoop,
        method: Method[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        call: Call[Any] | None = None,
    ) -> None:
        """Run a method; what it has changed counts if it ends well."""
        self.acting, self._action, self._due, self._over, self.where = True, "", None, False, ""
        self.asked = call is not None and call.asked
        loop.count_anew()
        try:
            answer: Any = method.function(self._entity, *args, **kwargs)
            if inspect.isawaitable(answer):
                answer = await answer
            await self._end_tasks(loop)
            fields = self._kind.encode(self._entity)
            raw = method.shape.encode_result(answer) if call is not None and call.asked else b""
        except Exception as error:
            if call is None or not call.asked or not isinstance(error, Refusal):
                raise self._broken(loop, method, call, error) from error
            await self._end_tasks(loop)
            self._roll_back()
            call.answer(error)
        else:
            self._fields = self._with_unknown(fields)
            if self._action:
                self._schedule(loop, method)
            if call is not None:
                call.answer_raw(raw)
        finally:
            self.acting = False
        forgive(loop, ends=self._over)
        self._ended(loop)

    def _broken(self, loop: AskingLoop, method: Method[..., Any], call: Call[Any] | None, error: Exception) -> Broken:
        """The machine is broken until a person has put right what is wrong; whoever waits for this method hears it."""
        if method is self._kind.init:
            loop.state = written(Checkpoint(self._run, form=self._kind.form), b"{}")
        if call is not None:
            call.answer(error)
        failure = Failure.of(error)
        text = f"in {self.where or method.function.__qualname__}: {failure.message}".rstrip(": ")
        return Broken(replace(failure, message=text))

    def _schedule(self, loop: AskingLoop, method: Method[..., Any]) -> None:
        """Set the timer, or the removal, as the action of the method says."""
        if self.due is not None and (self.due, self.removal) != (self._due, self._removal):
            self.changes.append(TimerChange(method.name, self.due, self.removal, self._due, self._removal))
            loop.notes = True
        self.due, self.removal, self.context = self._due, self._removal, loop.context
        if self._closed:
            self._close(loop)

    def _close(self, loop: AskingLoop) -> None:
        """Hear nothing more, and stay until those who have just called have read their answers."""
        self.closed = True
        self.due = loop.now + microseconds(limits.REMOVAL_SECONDS)

    def _roll_back(self) -> None:
        self._entity = self._kind.entity(self._fields, self._kind.form)
        self._over = False

    async def _end_tasks(self, loop: AskingLoop) -> None:
        """Cancel and await what the method has left running: when it has ended, nothing of it goes on."""
        if not (loop.tasks or loop.open):
            return
        branch = f".0.{self.method}"
        left: list[asyncio.Future[Any]] = [
            task for task in loop.tasks if not task.done() and task.branch.startswith(f"{branch}.")
        ]
        left += [ask for ask in loop.open.values() if ask.place.startswith((f"{branch}:", f"{branch}."))]
        for one in left:
            one.cancel()
        if any(not one.done() for one in left):
            await asyncio.wait(left)

    # -- what is kept ------------------------------------------------------------------------------------------------

    def _wake(
        self, loop: AskingLoop, checkpoint: Checkpoint, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Repair | None:
        """Go on where the row says that the machine stood; the answer is what is to be done first."""
        loop.state, self._state = self._state, None
        if checkpoint.form > self._kind.form:
            self.misfit = HistoryMisfit(f"fields of form {checkpoint.form}", f"reads form {self._kind.form} at most")
            raise Broken(Failure.of(self.misfit))
        try:
            self._entity = self._kind.entity(self._fields, checkpoint.form)
            if checkpoint.form != self._kind.form:  # from here on the fields are written as of the new form
                self._fields = self._kind.encode(self._entity)
            else:
                self._unknown = self._kind.unknown(self._fields)
        except Exception as error:  # the class has changed, or its upgrade raises: nothing of the machine is lost
            raise Broken(Failure.of(error)) from error
        self.due, self.removal, self.closed = checkpoint.due, checkpoint.removal, checkpoint.closed
        self.context, loop.context = checkpoint.context or None, None
        if checkpoint.run != self._run:
            raise Renewal(self._kind.shape.encode(args, kwargs))
        self.method = checkpoint.method - 1
        self._turns = checkpoint.turn - loop.runs
        return checkpoint.repair

    def _with_unknown(self, fields: bytes) -> bytes:
        """The fields of the class, and those that newer code has stored beside them: these stay as they are."""
        if not self._unknown:
            return fields
        return json.encode(json.decode(fields, type=dict[str, Raw]) | self._unknown)

    def _ended(self, loop: AskingLoop) -> None:
        """A method has ended: what it has left is kept with the commit of this turn."""
        if not self._unsaved:
            self._unsaved = True
            loop.call_soon(self._save, loop)

    def _save(self, loop: AskingLoop) -> None:
        if self._unsaved:
            self._unsaved = False
            turn = loop.runs + self._turns
            loop.state = self._written(self._run, turn, self.method, self.letter)

    def _written(self, run: int, turn: int, method: int, letter: int) -> bytes:
        """The state of the machine, as it stands there."""
        context = "" if self.due is None or self.context is None else self.context
        form = self._kind.form
        here = Checkpoint(run, turn, method, letter, self.due, form, None, self.removal, self.closed, context)
        return written(here, self._fields)

    def _is_long(self, loop: AskingLoop) -> bool:
        """Whether the history of this run is long: by its turns, or by its methods, which may be many in one turn."""
        return loop.runs + self._turns >= limits.FOLDED_TURNS or 2 * self.method >= limits.FOLDED_RECORDS

    def _fold(self, loop: AskingLoop, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Begin a new run, so that the history of a machine stays short however old it grows."""
        self._unsaved = False
        loop.state = self._written(self._run + 1, 0, 1, 0)
        raise Renewal(self._kind.shape.encode(args, kwargs))


def _arguments(method: Method[..., Any], letter: bytes) -> tuple[list[Any], dict[str, Any]]:
    """The arguments that a letter holds; a notice, which the library sends, is one argument. Raises PayloadError."""
    try:
        return method.shape.decode(letter)
    except PayloadError:
        if method.name != SIGNAL or letter[:1] != b"{":
            raise
    return method.shape.decode(b"[%s]" % letter)
