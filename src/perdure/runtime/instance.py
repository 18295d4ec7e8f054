"""An instance: one process held in memory, its code, and what has happened but is not yet written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from perdure.authoring.task import QueueWork, task_of
from perdure.kernel.commit import Commit
from perdure.kernel.event import HAPPENED, Event, EventType
from perdure.kernel.message import Message
from perdure.kernel.names import id_text
from perdure.kernel.process import Process
from perdure.kernel.workflow_retry import FIRST_EVENTS
from perdure.runtime.inbox import Inbox
from perdure.runtime.open_steps import OpenSteps
from perdure.runtime.outbox import Outbox
from perdure.turns.loop import Ask, TurnLoop

if TYPE_CHECKING:
    from perdure.authoring.workflow import Workflow

Input: TypeAlias = tuple[EventType, Any, bytes | None, bool]
"""What opens a turn: (STEP_COMPLETED or STEP_FAILED, the ask, its payload, whether that was just written here) or
(MESSAGE_RECEIVED, the message, None, False)."""


class Instance:
    """One process in memory. ``process`` is the row as last committed; everything else is what came since.

    Only its own verbs change it, and those of its ``steps``, its ``inbox`` and its ``outbox``, which is made when it is
    needed. ``events`` are not written yet, ``inputs`` wait for the next turn, and ``commit`` is under way. ``at`` is
    the time of the last turn, or of what was noted since, ``turns`` the number of turns, ``not_before`` the latest
    timer that has fired since the last commit. It is ``gone`` once it was let go; ``leaving``, or with ``trouble``, it
    is let go when the commit under way has been answered. ``lease_end`` is on the monotonic clock, ``resumed`` the
    event by which a person resumed it. ``last_event`` of its history was written or replayed, ``weight`` are the bytes
    of all payloads. ``beginning`` are the first events of its history, as they were read: they say how the run was
    opened.
    """

    __slots__ = (
        "at", "beginning", "commit", "events", "gone", "inbox", "inputs", "last_event", "lease_end", "leaving", "loop",
        "not_before", "number", "outbox", "process", "resumed", "steps", "trouble", "turns", "warned", "weight",
        "workflow",
    )  # fmt: skip

    def __init__(
        self,
        process: Process,
        workflow: Workflow[Any, Any],
        loop: TurnLoop,
        lease_end: float = 0.0,
        history: Sequence[Event] = (),
    ) -> None:
        self.process = process
        self.workflow = workflow
        self.loop = loop
        self.lease_end = lease_end
        self.number = process.events
        self.turns = 0
        self.at = process.opened_at or 0
        self.events: list[Event] = []
        self.inputs: list[Input] = []
        self.steps = OpenSteps(process.run)
        self.inbox = Inbox(process.seen)
        self.outbox: Outbox | None = None
        self.not_before = 0
        self.commit: Commit | None = None
        self.gone = False
        self.leaving = False
        self.trouble: BaseException | None = None
        self.warned = False
        self.resumed = 0
        self.beginning = history and history[:FIRST_EVENTS]
        self.last_event = history[-1] if history else None
        self.weight = sum(len(event.payload) for event in history if event.payload is not None) if history else 0

    # -- what comes in ---------------------------------------------------------------------------------------------

    def deliver(self, type: EventType, ask: Ask[Any], payload: bytes | None, *, ours: bool = False) -> None:
        """A step has completed or failed: its answer opens the next turn. ``ours``: it was just written here."""
        self.steps.in_flight.pop(ask.slot, None)
        self.inputs.append((type, ask, payload, ours))

    def hear(self, messages: Sequence[Message]) -> int:
        """Put messages into the next turn, each once, in the order of their numbers; return how many were new.

        Raises DamagedRecord if one is missing in front of a later one.
        """
        new = 0
        for message in self.inbox.hear(self.process, messages):
            self.inputs.append((EventType.MESSAGE_RECEIVED, message, None, False))
            self.weight += len(message.payload)
            new += 1
        return new

    def fetched(self, letters: Iterable[Message]) -> None:
        """Letters that waited in the store were read: they come before all that was heard since."""
        self.inbox.fetch(())
        self.at += 1  # the timer of a receive with timeout 0 fires in the turn that hears the letters, if any came
        self.inputs[:0] = [(EventType.MESSAGE_RECEIVED, letter, None, False) for letter in letters]

    # -- turns -----------------------------------------------------------------------------------------------------

    def begin_turn(self, now: int, due: Sequence[tuple[int, str]]) -> list[Input]:
        """Begin a turn, in which the timers ``due`` fire; return its inputs."""
        self.at = now
        self.turns += 1
        if due:
            for when, place in due:
                self.not_before = max(self.not_before, when)
                self.record(EventType.TIMER_FIRED, place, "timer")
        inputs, self.inputs = self.inputs, []
        return inputs

    def void_turn(self) -> None:
        """Take back a turn that brought only letters that the code does not await: a replay has no such turn."""
        self.turns -= 1

    def reach(self, at: int, turn: int | None = None) -> None:
        """Set the time of what happens now, and in a replay its turn."""
        self.at = at
        if turn is not None:
            self.turns = turn

    def resume(self, number: int) -> None:
        """A person has resumed the process, by the event of that number."""
        self.resumed = number
        self.steps.resume()

    def record(
        self,
        type: EventType,
        place: str,
        name: str,
        payload: bytes | None = None,
        digest: bytes | None = None,
        message: int | None = None,
    ) -> None:
        """Record an event of the turn that is run, to be replayed in it."""
        self.number += 1
        if payload is not None:
            self.weight += len(payload)
        self.events.append(Event(self.number, self.turns, type, self.at, place, name, payload, digest, message))

    def note(
        self,
        type: EventType,
        now: int,
        payload: bytes | None,
        *,
        name: str = "",
        place: str = "",
        digest: bytes | None = None,
        message: int | None = None,
    ) -> None:
        """Record evidence for people (a failed attempt, a revival): it belongs to no turn and is not replayed.

        No later turn is of an earlier time.
        """
        self.number += 1
        self.at = max(self.at, next_at(self, now))
        self.events.append(Event(self.number, 0, type, self.at, place, name, payload, digest, message))

    def outward(self) -> Outbox:
        """The outbox, made when it is first needed."""
        if self.outbox is None:
            self.outbox = Outbox()
        return self.outbox

    def warn_once(self) -> bool:
        """Whether to warn people of its long history: true only for the first call."""
        warned, self.warned = self.warned, True
        return not warned

    # -- commits ---------------------------------------------------------------------------------------------------

    def handed_over(self, commit: Commit, *, cleared: bool = False) -> None:
        """All that had happened is in a commit that is under way; the steps asked for wait for its answer."""
        if cleared:
            self.steps.forget_deaths(written=True)
        if self.steps.asked:
            self.steps.expect()
        if self.inbox.consumed:
            self.inbox.committed()
        if commit.events:
            self.last_event = commit.events[-1]
        self.events = []
        self.not_before = 0
        self.number = commit.after.events
        self.commit = commit

    def committed(self, after: Process, lease_end: float) -> None:
        """The commit under way was applied: ``after`` is the row now."""
        self.commit = None
        self.process = after
        if lease_end > self.lease_end:  # it may have been long under way, and a beat has renewed the lease since
            self.lease_end = lease_end

    def take_back(self, commit: Commit) -> None:
        """A finishing commit was answered "read first": its events are unwritten again, without the ending."""
        self.commit = None
        if self.outbox is not None:
            self.outbox.restore(commit)
        if commit.after.deaths < self.process.deaths:
            self.steps.forget_deaths(written=False)
        self.inbox.take_back(commit.consumed)
        self.events = list(commit.events[:-1])
        self.not_before = commit.not_before
        self.number = commit.after.events - 1

    def unwritten(self) -> None:
        """The commit under way was answered, and nothing of it was written; what had happened is to be written yet."""
        if self.commit is not None:
            self.events[:0] = [event for event in self.commit.events if event.type in HAPPENED]
        self.commit = None

    def renewed(self, lease_end: float, claimed: Process | None = None) -> None:
        """A beat has renewed the lease; a late answer does not shorten it.

        Or it was let go and ``claimed`` again: that is the row now, and it goes on from memory.
        """
        self.lease_end = max(self.lease_end, lease_end)
        if claimed is not None:
            self.process, self.gone = claimed, False
            self.inbox.patience = 0

    def show(self, progress: bytes | None) -> None:
        """The row shows this progress, as a beat writes it; None if that beat has failed."""
        self.process = replace(self.process, progress=progress)

    # -- what is left ----------------------------------------------------------------------------------------------

    def idempotency_key(self, ask: Ask[Any]) -> str:
        """The key that all attempts of the step carry: it names the run in which the step was first asked for.

        A task has the key of the step which its parent asked for.
        """
        if isinstance(self.workflow, QueueWork):
            return task_of(self.process.input).key
        run = self.steps.first_run(ask.slot)
        return f"{id_text(self.process.id)}/{run}/{ask.name}:{ask.place}"

    def leave(self, trouble: BaseException | None = None) -> None:
        """Hand the process back once the commit under way has been answered, or park it with its trouble."""
        if trouble is None:
            self.leaving = True
        else:
            self.trouble = trouble

    def drop(self, *, evict: bool = True) -> None:
        """Let go: steps are cancelled, the code's memory is evicted; nothing that it does now counts (rule 20).

        If it is not to ``evict``, the code stays in memory: until it is claimed again, nothing that comes in counts.
        """
        self.gone = True
        if self.inbox.brought is not None and self.commit is None:
            self.inbox.brought_in().written(None)
        if not evict:
            return
        if self.steps.in_flight or self.steps.retries:
            self.steps.stop()
        self.loop.evict()


def next_at(instance: Instance, now: int) -> int:
    """The time of what is recorded ``now``: never earlier than what the history has, or will have, before it."""
    last = instance.events[-1] if instance.events else instance.last_event
    return now if last is None or last.at < now else last.at


def happened(instance: Instance) -> tuple[Event, ...]:
    """What has happened to a process and is not written: it counts although what its code did then is void."""
    return tuple(event for event in instance.events if event.type in HAPPENED)
