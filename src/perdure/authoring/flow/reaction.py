"""The reaction of a flow to one event, and to all that follows from it: its states change, its actions are done.

A reaction is one method of the flow's machine: what it changes counts when it has ended. So an event that comes
meanwhile waits, and each event meets a flow that stands in a state.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from perdure import limits
from perdure.authoring.flow.action import Action, FlowRequest
from perdure.authoring.flow.answer import Answer, happened
from perdure.authoring.flow.behaviour import Behaviour
from perdure.authoring.flow.condition import Condition
from perdure.authoring.flow.event import FlowEvent, Happened
from perdure.authoring.flow.position import ABORTED, FlowPosition, OpenRequest, Unexpected, request_id
from perdure.authoring.flow.row import Row
from perdure.authoring.flow.state import State, Timed
from perdure.authoring.machine.actions import Refusal
from perdure.errors import PayloadError, StepError, WorkflowMisuse
from perdure.kernel import payload
from perdure.turns.current import turn_for
from perdure.turns.publication import set_attributes

if TYPE_CHECKING:
    from perdure.authoring.flow.definition import Flow

SECOND = 1_000_000
A = TypeVar("A", bound=Action)


class Failed(Exception):
    """A flow has come to a terminal state that is a failure."""


class Aborted(Exception):
    """A person has aborted a flow."""


class Cut(Exception):
    """What a flow was doing is cancelled, since a time is over; ``own`` says that it is the action's own."""

    def __init__(self, own: bool) -> None:
        super().__init__("its time is over")
        self.own = own


class Reaction:
    """What one letter, or the timer, brings about in a flow."""

    def __init__(self, flow: Flow, behaviour: Behaviour) -> None:
        self.flow = flow
        self.behaviour = behaviour
        self.position: FlowPosition = flow.flow
        self.turn = turn_for("a flow")
        self.life: Any = self.turn.machine
        self._ahead: deque[Happened] = deque()
        self._fresh: set[str] = set()
        self._begun: set[str] = set()  # names of the times of states and stretches that began in this very reaction

    # -- what begins a reaction --------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Enter the first state."""
        (row,) = self.behaviour.beginnings
        await self._follow(row)
        await self._go_on()

    async def react(self, happened: Happened) -> str:
        """Take an event from outside; returns the state after it. Raises Refusal if a call brought it in vain."""
        await self._take(happened, outside=True)
        return await self._go_on()

    async def answered(self, id: str, answer: Answer) -> str:
        """Take an answer to a request; returns the state after it. Raises Refusal if a call brought it in vain."""
        request = next((one for one in self.position.requests if one.id == id), None)
        told = [id, answer.code, answer.reason, answer.value]
        if request is None:
            self._pass_over("answer", f"no request with the id {id!r:.200} is open", told, outside=True)
            return await self._go_on()
        found = self.behaviour.actions[request.name].answers.find(answer)
        if found is None:
            why = f"{request.name} knows no answer {answer.code!r:.100}, and has no default"
            self._pass_over("answer", why, told, outside=True)
            return await self._go_on()
        event, completing = found
        try:
            brought = happened(event, answer)
        except PayloadError as error:
            self._pass_over("answer", f"{error}", told, outside=True)
            return await self._go_on()
        if completing:
            self.position.close(request.name)
        self._ahead.append(brought)
        return await self._go_on()

    async def come_due(self) -> None:
        """Take the timeout that has come, or else send the request whose time has come."""
        if self._state().terminal:  # a person has had a flow retried that has ended as failed: it ends again
            await self._go_on()
            return
        now, position = self.turn.now, self.position
        over = min((one for one in position.timeouts() if one[0] <= now), default=None)
        again = [one for one in position.requests if one.again is not None and one.again <= now]
        if over is not None:
            self._time_out(over[1])
        elif again:
            with self._past_refusing():
                await self._until_cut(again[0])
        await self._go_on()

    async def abort(self, why: str) -> str:
        """End the flow, whatever it waits for."""
        self.position.aborted = why
        self._enter(_aborted)
        return await self._go_on()

    # -- events ------------------------------------------------------------------------------------------------------

    async def _go_on(self) -> str:
        """Take all that has followed from the event, then wait for the next one or end."""
        taken = 0
        while self._ahead:
            taken += 1
            if taken > limits.FLOW_EVENTS:
                raise WorkflowMisuse(
                    f"{self.behaviour.name} has gone through {limits.FLOW_EVENTS} events without waiting, the last one "
                    f"{self._ahead[0].event!r} in {self.position.state!r}. Put a state with a timeout on that way."
                )
            with self._past_refusing():
                await self._take(self._ahead.popleft())
        self._settle()
        return self.position.state

    async def _take(self, happened: Happened, *, outside: bool = False) -> None:
        """Find the row for an event, let it change the fields, and follow the row."""
        position, name = self.position, happened.event
        row, why = self._row(happened)
        told: Any = [*happened.args]
        if happened.kwargs:
            told = {**({"": told} if told else {}), **happened.kwargs}
        if row is None:
            self._pass_over(name, f"{why} in {position.state}", told, outside=outside)
            return
        if row.together and name in position.came:
            self._pass_over(name, f"it has come before in {position.state}", told, outside=outside)
            return
        try:
            self._change(happened)
        except Refusal as refusal:
            self._pass_over(name, f"{refusal}", told, outside=outside)
            return
        if row.together:
            position.came.append(name)
            if set(row.names) - set(position.came):
                return
        await self._follow(row)

    def _row(self, happened: Happened) -> tuple[Row | None, str]:
        """The first row for an event in this state whose condition holds, or None and why there is none."""
        rows = self.behaviour.of.get((self._state().name, happened.event))
        if rows is None:
            return None, "no row expects it"
        for row in rows:
            if row.condition is None or self._holds(row.condition, happened):
                return row, ""
        return None, "no condition of a row for it holds"

    def _holds(self, condition: Condition, happened: Happened) -> bool:
        event = self.behaviour.events.get(happened.event)
        self.life.where = condition.function.__qualname__
        return condition.holds(self.flow, {} if event is None else event.brought(happened))

    def _change(self, happened: Happened) -> None:
        """Let an event change the fields; one that raises Refusal has changed none of them."""
        event = self.behaviour.events.get(happened.event)
        if event is None:
            return
        self.life.where = event.body.__qualname__
        fields, types = vars(self.flow), self.behaviour.kind.__machine__.types
        before = {name: payload.encode(fields[name], what=name) for name in types if name != "flow" and name in fields}
        try:
            event.body(self.flow, *happened.args, **happened.kwargs)
        except Refusal:
            fields.update({name: payload.decode(raw, types[name], what=name) for name, raw in before.items()})
            raise

    def _pass_over(self, event: str, why: str, told: Any, *, outside: bool = False) -> None:
        """Keep an event that changes nothing; the caller of one from outside hears that. Raises Refusal."""
        if outside and self.life.asked:
            raise Refusal(f"{event}: {why}")
        position = self.position
        raw = payload.encode(told, what=f"the arguments of {event}")
        kept = payload.decode(raw, Any, what=event) if len(raw) <= limits.UNEXPECTED_BYTES else None
        position.passed_over += 1
        position.unexpected.append(Unexpected(event, position.state, self.turn.now, why, kept or None))
        del position.unexpected[: -limits.UNEXPECTED_EVENTS]

    @contextmanager
    def _past_refusing(self) -> Iterator[None]:
        """Break the flow by a Refusal that comes when a state was entered or a request sent: it cannot undo that."""
        try:
            yield
        except Refusal as refusal:
            raise WorkflowMisuse(
                f"{self.life.where} has raised {refusal!r:.200}, but only an event refuses, before all that follows "
                "from it. Name it in errors= of the action, or raise it in the event."
            ) from refusal

    def _time_out(self, name: str) -> None:
        """Let the event of a timeout happen, which counts once."""
        if self.position.due.pop(name, None) is None:
            self.position.close(name.partition(".")[0])
        self._ahead.append(Happened(name))

    # -- states ------------------------------------------------------------------------------------------------------

    def _state(self) -> State:
        name = self.position.state
        if name == ABORTED:
            return _aborted
        state: State | None = self.behaviour.states.get(name)
        if state is None:
            raise WorkflowMisuse(
                f"this flow stands in the state {name!r}, which {self.behaviour.name} does not have. Bring the state "
                "back; a retry then goes on."
            )
        return state

    async def _follow(self, row: Row) -> None:
        """Go where a row leads, and do its actions."""
        for request in row.stopped:
            self.position.close(request.name)
        if row.target is not None:
            self._enter(row.target)
        with self._past_refusing():
            for action in row.actions:
                cut = await (self._ask(action) if isinstance(action, FlowRequest) else self._act(action))
                if cut:
                    return

    def _enter(self, state: State) -> None:
        position, now = self.position, self.turn.now
        left = self.behaviour.states.get(position.state)
        if left is not None:
            position.due.pop(left.timed_out.name, None)
        position.state, position.since, position.came = state.name, now, []
        position.visit += 1
        for stretch in self.behaviour.stretches.values():
            name = stretch.timed_out.name
            if stretch.end is state:
                position.due.pop(name, None)
            elif stretch.start is state and name not in position.due:
                self._begin_time(stretch)
        self._begin_time(state)
        if state.terminal:
            position.due, position.requests = {}, []
        set_attributes(state=state.name, phase=state.phase)

    def _begin_time(self, timed: Timed) -> None:
        """Set when the time of a state, or of a stretch, is over; what a policy says later changes that no more."""
        limit = self.turn.limit(self.position.state, timed)
        if limit is not None:
            self.position.due[timed.timed_out.name] = self.turn.now + round(limit * SECOND)
            self._begun.add(timed.timed_out.name)

    def _settle(self) -> None:
        """Say what the machine does next: end, or wait for the first of its times."""
        state, now = self._state(), self.turn.now
        if state is _aborted:
            self.life.act("fail", due=now, end=True, error=Aborted(self.position.aborted))
        elif state.failed:
            why = getattr(self.flow, state.result) if state.result else ""
            self.life.act("fail", due=now, end=True, error=Failed(f"{state.name}: {why}".rstrip(": ")))
        elif state.terminal:
            result = getattr(self.flow, state.result) if state.result else state.name
            self.life.act("complete", end=True, result=result)
        else:
            due = self.position.next_due()
            self.life.act("suspend" if due is None else "schedule", due=due)

    # -- actions -----------------------------------------------------------------------------------------------------

    async def _act(self, action: Action) -> bool:
        """Do an action; what it says has happened is taken once all actions of its row are done. True: it was cut."""
        try:
            action = self._as_set(action, self.position.state)
            said = await self._bounded(action.function(self.flow), action, action.timeout, self.position.state)
        except Cut as cut:
            if cut.own:
                self._ahead.append(Happened(action.timed_out.name))
            return not cut.own
        except action.expected as error:
            self._lead(action.of_error(error), Answer(type(error).__name__, f"{error}"))
            return False
        if isinstance(said, Answer):
            found = action.answers.find(said)
            if found is None:
                raise WorkflowMisuse(
                    f"{action.function.__qualname__} has answered {said.code!r:.100}, which its answers do not name. "
                    "Add that code, or a default."
                )
            self._lead(found[0], said)
        elif isinstance(said, Happened):
            self._ahead.append(said)
        elif said is not None:
            raise WorkflowMisuse(
                f"{action.function.__qualname__} has returned {said!r:.100}. Return an event, as in "
                "`return self.reserved(...)`, a flow.Answer, or nothing."
            )
        return False

    async def _ask(self, request: FlowRequest) -> bool:
        """Make a request: it is open from now on. True: it was cut."""
        position, now = self.position, self.turn.now
        position.close(request.name)
        position.asked += 1
        id = request_id(self.turn.process_id, position.asked, request.name)
        until = now + round(self._as_set(request, position.state).timeout * SECOND)
        opened = OpenRequest(request.name, id, position.state, now, until)
        position.requests.append(opened)
        self._fresh.add(request.timed_out.name)
        return await self._until_cut(opened)

    def _as_set(self, action: A, state: str) -> A:
        """An action or request as it is done in a state: with the settings of the rows into it, and by policy."""
        there: Any = self.behaviour.done_in.get(state, {}).get(action.name, action)
        as_set: A = there.by_policy(self.turn.rulings(state, there))
        return as_set

    async def _until_cut(self, opened: OpenRequest) -> bool:
        """Send a request, for the first time or again. True: it was cut."""
        request = self._as_set(self.behaviour.actions[opened.name], opened.state)
        opened.sends += 1
        spent = (self.turn.now - opened.since) / SECOND
        delay = request.retry.next_delay(opened.sends, spent, self.turn.chance.random())
        opened.again = None if delay is None else self.turn.now + round(delay * SECOND)
        opened.trouble = ""
        left = (opened.until - self.turn.now) / SECOND
        try:
            await self._bounded(request.function(self.flow, opened.id), request, left, opened.state)
        except Cut as cut:
            return not cut.own or self._leads_on(request.timed_out.name)
        except request.expected as error:
            self.position.close(request.name)
            self._lead(request.of_error(error), Answer(type(error).__name__, f"{error}"))
        except StepError as error:  # it may have been sent or not: the next send, or the timeout, goes on from here
            opened.trouble = f"{error}"
        return False

    def _lead(self, event: FlowEvent[...], answer: Answer) -> None:
        self._ahead.append(happened(event, answer))

    async def _bounded(self, doing: Awaitable[Any], action: Action, own: float | None, state: str) -> Any:
        """Await what an action does, until a time is over that leads the flow elsewhere; raises Cut then.

        ``own`` is the time that it has itself, in seconds. Whether that is over says the timer that has fired, and no
        comparison: a policy may have changed it before a replay. So the time of a request that was made in this very
        reaction ends nothing but that request, and the time of a state that was entered in it is always a timer.
        """
        apart = {*self._fresh, action.timed_out.name}
        now = self.turn.now
        others = [one for one in self.position.timeouts() if one[1] not in apart and self._leads_on(one[1])]
        first = min((at for at, _ in others), default=None)
        life = self.life
        life.where, life.state, life.once = action.function.__qualname__, state, action.at_most_once
        life.revival_delay, life.keep_arguments = action.revival_delay, action.keep_arguments
        if own is None and first is None:
            return await doing
        left = None if first is None else max(first - now, 1) / SECOND
        if any(at <= now and name not in self._begun for at, name in others):
            if inspect.iscoroutine(doing):
                doing.close()
            raise Cut(own=False)
        elsewhere, mine = asyncio.timeout(left), asyncio.timeout(own)
        try:
            async with elsewhere, mine:
                return await doing
        except TimeoutError:
            if mine.expired() or elsewhere.expired():
                raise Cut(mine.expired()) from None
            raise

    def _leads_on(self, timeout: str) -> bool:
        row, _ = self._row(Happened(timeout))
        return row is not None and row.target is not None and not row.together


_aborted = State(terminal=True, failed=True, phase="ABORTED")
_aborted.name = ABORTED
