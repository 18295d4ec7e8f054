"""An eager start: a worker that starts a process it hosts runs the first turn before it stores anything (rule 16)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure.authoring.workflow import Workflow
from perdure.errors import StoreError
from perdure.kernel.commit import CREATED, STILL_BUSY, Start, StartAnswer
from perdure.kernel.message import Message
from perdure.kernel.process import Process
from perdure.logs import logger
from perdure.runtime import release, turn_commit
from perdure.runtime.instance import Instance
from perdure.runtime.turn_commit import drafted
from perdure.turns.loop import TurnLoop

if TYPE_CHECKING:
    from perdure.runtime.scheduler import Scheduler

log = logger("worker")


class EagerStart:
    """Starts processes as owned by this worker: no claim, no wake-up."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._messages: dict[bytes, tuple[Message, ...]] = {}

    def start(
        self,
        process: Process,
        workflow: Workflow[Any, Any],
        answered: Callable[[Any], None],
        messages: tuple[Message, ...] = (),
    ) -> None:
        """Have the first turn run, and both stored in one insert. ``answered`` gets the StartAnswer.

        What the turn asked for is released when the insert has been committed, and messages that came with it have
        been heard. A process whose first turn ends it hears them before: it is started the plain way.
        """
        scheduler = self.scheduler
        now = scheduler.time.now()
        process = replace(process, owner=scheduler.incarnation.id, token=1, created_at=now, opened_at=now)
        instance = Instance(process, workflow, TurnLoop(process.id, process.id))
        instance.told = answered
        if messages:
            self._messages[process.id] = messages
        scheduler.starting.add(process.id)
        scheduler.feed(instance)

    def open(self, instance: Instance) -> None:
        """Run the first turn, and hand in the insert that carries it."""
        scheduler = self.scheduler
        messages = self._messages.pop(instance.process.id, ()) if self._messages else ()
        try:
            instance.begin(instance.process.created_at)
            instance.gather()
            outbox = instance.outbox
            wait = outbox is not None and outbox.pending  # an insert carries no children: the next commit does
            outcome = STILL_BUSY if wait else turn_commit.outcome(instance, scheduler.time, scheduler.hold)
            commit = drafted(scheduler, instance, outcome, inward=wait)
        except Exception as error:  # it is accepted all the same: whoever claims it parks it as broken
            log.warning("the first turn of a process of kind %r cannot be run: %s", instance.process.kind, error)
            self._start_plain(instance, messages)
            return
        if messages and commit.after.final:
            self._start_plain(instance, messages)
            return
        instance.commit = commit
        start = Start(commit.after, commit.events, commit.lease, messages)
        scheduler.committer.start(start, partial(self._stored, instance))

    def _start_plain(self, instance: Instance, messages: tuple[Message, ...]) -> None:
        """Start it as owned by nobody, as if no turn of it had been run."""
        instance.drop()
        unowned = replace(instance.process, owner=None, token=0, created_at=0, opened_at=None)
        self.scheduler.committer.start(Start(unowned, messages=messages), partial(self._tell, instance))

    def _stored(self, instance: Instance, answer: StartAnswer | StoreError) -> None:
        scheduler = self.scheduler
        commit, instance.commit = instance.commit, None
        self._tell(instance, answer)
        counters = scheduler.telemetry.counters
        if isinstance(answer, StartAnswer) and answer.verdict is CREATED and commit is not None:
            counters["starts"] += 1
            counters["turns"] += 1
            scheduler.instances[instance.process.id] = instance
            instance.lease_end = scheduler.committer.sent + scheduler.lease_seconds
            if commit.after.owner is None or not release.lapsed(scheduler, instance):
                scheduler.applied(instance, commit, answer.inbox)
        else:
            # Somebody else has the key, or nothing could be stored: what the turn did in memory is void.
            instance.drop()
            if isinstance(answer, StartAnswer):
                counters["starts_existing"] += 1

    def _tell(self, instance: Instance, answer: Any) -> None:
        """Answer whoever started the process."""
        told, instance.told = instance.told, None
        self.scheduler.starting.discard(instance.process.id)
        if told is not None:
            told(answer)
