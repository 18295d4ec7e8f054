"""An eager start: a worker that starts a process it hosts runs the first turn before it stores anything (rule 16)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from perdure.authoring.workflow import Workflow
from perdure.errors import StoreError
from perdure.kernel.commit import CREATED, STILL_BUSY, Commit, Start, StartAnswer, StartVerdict
from perdure.kernel.message import Message
from perdure.kernel.process import Process
from perdure.logs import logger
from perdure.runtime import release, turn, turn_commit
from perdure.runtime.instance import Instance
from perdure.runtime.loops import loop_of
from perdure.runtime.turn_commit import drafted

if TYPE_CHECKING:
    from perdure.runtime.holder import Holder

log = logger("worker")


Answered: TypeAlias = Callable[[Any], None]
"""The callback that gets the StartAnswer, or the error."""


class EagerStart:
    """Starts processes as owned by this worker: no claim, no wake-up.

    ``starting`` are those whose insert is not answered yet, by id: the callback for the answer, the messages that come
    with the start, and whether others may start a process of the same id.
    """

    def __init__(self, scheduler: Holder) -> None:
        self.scheduler = scheduler
        self.starting: dict[bytes, tuple[Answered, tuple[Message, ...], bool]] = {}
        self._void: set[bytes] = set()

    def void(self) -> None:
        """The worker's incarnation has ended: what is being started in its name is not held here (rule 11)."""
        self._void = set(self.starting)

    def knows(self, process: bytes) -> bool:
        """Whether a process of that id is held here or being started."""
        return process in self.starting or process in self.scheduler.instances

    def start(
        self,
        process: Process,
        workflow: Workflow[Any, Any],
        answered: Answered,
        messages: tuple[Message, ...] = (),
        repeated: bool = False,
    ) -> None:
        """Have the first turn run, and the process stored with it in one insert. ``answered`` gets the StartAnswer.

        What the turn asked for is released when the insert has been committed, and messages that came with it have
        been heard. A process whose first turn would end it must hear them before: it is started the plain way.

        ``repeated``: others may start a process of the same id, here or elsewhere. Then it is ours only if its row is
        new: one that was there already may be anybody's, and may have ended.
        """
        scheduler = self.scheduler
        now = scheduler.parts.time.now()
        process = replace(process, owner=scheduler.parts.incarnation.id, token=1, created_at=now, opened_at=now)
        self.starting[process.id] = answered, messages, repeated
        scheduler.feed(Instance(process, workflow, loop_of(process, workflow, scheduler.parts.policies)))

    def open(self, instance: Instance) -> None:
        """Run the first turn, and hand in the insert that carries it."""
        scheduler = self.scheduler
        messages = self.starting[instance.process.id][1]
        try:
            turn.begin(instance, ours=True)
            turn.gather(instance)
            outbox = instance.outbox
            wait = outbox is not None and outbox.pending  # an insert carries no children: the next commit does
            outcome = STILL_BUSY if wait else turn_commit.outcome(instance, scheduler.parts.time, scheduler.hold)
            commit = drafted(scheduler.parts, instance, outcome, inward=wait)
        except Exception as error:  # it is accepted all the same: the worker that claims it parks it as broken
            log.warning("the first turn of a process of kind %r cannot be run: %s", instance.process.kind, error)
            self._start_plain(instance, messages)
            return
        if messages and commit.after.final:
            self._start_plain(instance, messages)
            return
        start = Start(commit.after, commit.events, commit.lease, messages)
        scheduler.parts.committer.start(start, partial(self._stored, instance, commit))

    def _start_plain(self, instance: Instance, messages: tuple[Message, ...]) -> None:
        """Start the process without an owner, as if no turn of it had been run."""
        instance.drop()
        unowned = replace(instance.process, owner=None, token=0, created_at=0, opened_at=None)
        self.scheduler.parts.committer.start(Start(unowned, messages=messages), partial(self._tell, instance))

    def _stored(self, instance: Instance, commit: Commit, answer: StartAnswer | StoreError) -> None:
        scheduler = self.scheduler
        counters = scheduler.parts.telemetry.counters
        if (
            isinstance(answer, StartAnswer)
            and answer.verdict is CREATED
            and not (answer.again and self.starting[instance.process.id][2])
        ):
            self.starting.pop(instance.process.id)[0](answer)  # as ``_tell`` does: every start comes by here
            counters["starts"] += 1
            counters["turns"] += 1
            if self._void and self._take_void(instance) and commit.after.owner is not None:
                instance.drop()  # its row is freed with those of the incarnation in whose name it was stored
                return
            scheduler.instances[instance.process.id] = instance
            instance.committed(commit.after, scheduler.parts.committer.sent + scheduler.lease_seconds)
            if commit.after.owner is None or not release.lapsed(scheduler, instance):
                scheduler.applied(instance, commit, answer.inbox)
        elif isinstance(answer, StartAnswer) and answer.verdict is StartVerdict.LIMITED:
            # A person has limited its kind meanwhile: what the turn did in memory is void, and it waits for a place.
            scheduler.parts.registry.note_limits(instance.process.kind)
            self._start_plain(instance, self.starting[instance.process.id][1])
        else:
            # Another process has the key or the id, or nothing could be stored: what the turn did in memory is void.
            self._tell(instance, answer)
            instance.drop()
            if isinstance(answer, StartAnswer):
                counters["starts_existing"] += 1

    def _tell(self, instance: Instance, answer: Any) -> None:
        """Answer the caller that started the process."""
        self._take_void(instance)
        self.starting.pop(instance.process.id)[0](answer)

    def _take_void(self, instance: Instance) -> bool:
        """Forget that a start is void, once it is answered, and say whether it was: the next one of that id is not."""
        void = instance.process.id in self._void
        self._void.discard(instance.process.id)
        return void
