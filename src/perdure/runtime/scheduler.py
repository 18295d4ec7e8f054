"""The scheduler: gives due processes their turns, has each turn committed, and releases what it asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from perdure import limits
from perdure.clock import microseconds
from perdure.errors import StoreError
from perdure.kernel.commit import APPLIED, Commit, CommitAnswer, Verdict
from perdure.kernel.event import EventType
from perdure.kernel.failure import UNKNOWN, Failure
from perdure.kernel.message import Message
from perdure.kernel.names import id_text
from perdure.kernel.process import COMPLETED, RUNNING
from perdure.kernel.retry import FailedAttempt
from perdure.logs import logger
from perdure.runtime import compensation, handing_back, inbox, published, release, turn, turn_commit
from perdure.runtime.bringing import Bringing
from perdure.runtime.eager_start import EagerStart
from perdure.runtime.events import WorkerEvents
from perdure.runtime.instance import Instance
from perdure.runtime.observed import ObservedAgent
from perdure.runtime.parts import WorkerParts
from perdure.runtime.process_cache import ProcessCache
from perdure.runtime.ready import Alarms, Ready
from perdure.runtime.shortage import Shortages
from perdure.runtime.steps.agent import Agent
from perdure.runtime.steps.attempt_run import AttemptRun
from perdure.runtime.steps.late_results import LateResults
from perdure.turns.loop import Ask
from perdure.turns.saga import UndoAsk, unheard

log = logger("process")


class Scheduler:
    """Holds this worker's processes, and the ids of those ``starting``, whose insert is under way.

    Nothing that comes in may reach those ``replaying`` before they are where they were.
    """

    def __init__(self, parts: WorkerParts, events: WorkerEvents) -> None:
        self.parts = parts
        self.events = events
        self.registry = parts.registry
        self.committer = parts.committer
        self.time = parts.time
        self.machine = parts.machine
        self.telemetry = parts.telemetry
        self.lease_seconds = parts.options.lease_seconds
        self.lease = parts.lease
        self.hold = microseconds(limits.HOLD_SECONDS)
        self.instances: dict[bytes, Instance] = {}
        self.replaying: set[Instance] = set()
        self.alarms = Alarms(parts.time, self._ring)
        self.shortages = Shortages(parts.telemetry, parts.machine.monotonic, events.worn_out)
        self.agent = (ObservedAgent if parts.observers else Agent)(parts, self, self.shortages)
        self.late_results = LateResults(parts.committer, events.sent)
        self.draining = False
        self.alone = parts.alone
        self.emptied = asyncio.Event()
        self.eager = EagerStart(self)
        self.unreadable = release.Unreadable(self)
        self.bringing = Bringing(self)
        self.cache = ProcessCache(0 if parts.alone else parts.options.cached)
        self.starting = self.eager.starting
        self.ready = Ready(self._turn, parts.time)
        for observer in parts.observers:
            observer.watch(self.ready, parts.time.monotonic)
        self.feed = self.ready.put

    # -- holding processes -------------------------------------------------------------------------------------

    def drop(self, instance: Instance) -> None:
        """Let a process go without writing: its lease is lost, or was refused (rule 17)."""
        instance.drop()
        self._part(instance)

    def _rest(self, instance: Instance) -> None:
        """Let a process go that only waits: its code stays in memory while there is room."""
        if self.draining or self.alone or not self.cache.keep(instance):
            instance.drop()
        self._part(instance)

    def _part(self, instance: Instance) -> None:
        if instance in self.alarms:
            self.alarms.cancel(instance)
        if self.instances.get(instance.process.id) is instance:
            del self.instances[instance.process.id]
            self.events.parted(instance.process.id)
            if not self.instances:
                self.emptied.set()

    def drain(self) -> None:
        """Begin no more steps; a process is handed back as soon as it has none in flight and all is written."""
        self.draining = True
        self.cache.clear()
        self.bringing.turn_all_away()
        for instance in list(self.instances.values()):
            if not (instance.steps.in_flight or instance.inputs or instance.events):
                self.release(instance)

    def release(self, instance: Instance, later: int = 0) -> None:
        """Release a process in the middle of its work, once its commit in flight is answered: others go on with it."""
        if instance.gone:
            return
        if instance.commit is not None:
            instance.leave()
            return
        self.drop(instance)
        self._write(instance, release.handed_back(instance, self.time.now() + later))

    # -- turns -------------------------------------------------------------------------------------------------

    def _turn(self, instance: Instance, now: int) -> None:
        loop = instance.loop
        if not loop.runs:
            self.eager.open(instance)
            return
        if (loop.finished and instance.commit is not None) or instance.inbox.fetching or instance.trouble is not None:
            return  # what has come in waits for the answer to the commit in flight, or for letters that came before it
        self.telemetry.counters["turns"] += 1
        try:
            turn.run(instance, now)
            turn.gather(instance)
        except Exception as error:  # a misfit, or code that loops without end: a person must see it
            if not handing_back.short(self, instance, error):
                self.park(instance, error)
        else:
            if loop.mailboxes and turn.must_fetch(instance):
                self.await_messages(instance)
            elif instance.inputs:  # what it has asked for is already answered
                self.feed(instance)
            self.settle(instance)

    def settle(self, instance: Instance) -> None:
        """Write what has happened, or release what was asked for if there is nothing to write."""
        if instance.commit is not None or instance.gone or instance.inbox.unheard:
            return
        try:
            self._go_on(instance)
        except Exception as error:  # a defect of ours must not leave a process held here and stuck
            instance.unwritten()  # if there is a commit, the committer has not taken it: no answer will come
            self.stuck(instance, error)

    def _go_on(self, instance: Instance) -> None:
        steps = instance.steps
        if steps.releasing:
            self._begin_asked(instance)
        loop = instance.loop
        written = (
            not (instance.events or loop.finished) and _all_written(instance) and loop.state == instance.process.state
        )
        if written and steps.asked:
            steps.expect()
            self._begin_asked(instance)
        if written and self.draining and not steps.in_flight and not instance.inputs:
            self.release(instance)
            return
        outcome = turn_commit.outcome(instance, self.time, self.hold, written)
        if outcome.status is not RUNNING:
            if outcome.removes is not None:
                commit = turn_commit.drafted(self.parts, instance, outcome)
                self.committer.take_away(commit, partial(self._answered, instance, commit))
                return
        elif not loop.finished:
            if instance.number >= limits.HISTORY_WARN_EVENTS:
                outcome = turn_commit.limited(instance, outcome)
            if outcome.busy:
                if loop.timers.open or instance.outbox is not None or instance.inbox.patience:
                    self.alarms.set(instance)
                if written:
                    return
        elif _all_written(instance):
            commit = turn_commit.next_run(self.parts, instance, outcome.wake_at)
            instance.handed_over(commit)
            self._write(instance, commit)
            return
        self._write(instance, turn_commit.drafted(self.parts, instance, outcome))

    # -- commits -----------------------------------------------------------------------------------------------

    def _write(self, instance: Instance, commit: Commit) -> None:
        self.committer.commit(commit, partial(self._answered, instance, commit))

    def _answered(self, instance: Instance, commit: Commit, answer: CommitAnswer | StoreError) -> None:
        if commit.brings is not None and self.bringing.answered(instance, commit, answer):
            return
        if isinstance(answer, CommitAnswer):
            if answer.verdict is APPLIED:
                self.telemetry.counters["commits"] += 1
                if commit.starts or commit.sends:
                    self.events.posted(commit)
                if not instance.gone:
                    instance.committed(commit.after, self.committer.sent + self.lease_seconds)
                    self.applied(instance, commit, answer.inbox)
                elif commit.lease and commit.after.id not in self.instances:
                    self.events.strayed()  # let go while this commit was under way, which has renewed its lease
                return
            if answer.verdict is Verdict.READ_FIRST and not instance.gone:
                self.telemetry.counters["commits_read_first"] += 1
                instance.take_back(commit)
                self.await_messages(instance, answer.inbox)
                return
            self.telemetry.counters["commits_refused"] += 1
            self.late_results.refused(commit.after)
            if not instance.gone:
                log.info("process %s: a late answer was refused", id_text(instance.process.id))
                self.drop(instance)
            return
        release.unwritten(self, instance, commit, answer)

    def applied(self, instance: Instance, commit: Commit, inbox: int) -> None:
        """A commit has been written: release what waited for it, let the process go, or go on."""
        process = commit.after
        if commit.published:
            self.events.answered(process.id, commit.events)
        if process.owner is None:
            # If we die here the row is free and due at its time; nobody waits for us.
            if process.status is not RUNNING:
                self.telemetry.counters[process.status.value] += 1
                self.events.ended(process, self.committer.sent)
                self.drop(instance)
                if process.status is not COMPLETED:
                    self.parts.alerts.ended(process)
                return
            self._rest(instance)
            if process.due_at is not None:
                self.events.due(self.time.now() if inbox > process.seen else process.due_at)
            return
        steps = instance.steps
        if instance.trouble is not None:
            self.park(instance, instance.trouble)
        elif (instance.leaving or (self.alone and not process.deaths)) and not steps.announced:
            self.release(instance)  # it goes on elsewhere: we stop, or it is no suspect any more
        elif inbox > instance.inbox.heard:
            self.await_messages(instance, inbox)  # rule 18: they open the next turn before outputs are released
        elif instance.events or steps.asked or instance.loop.timers.open or instance.outbox is not None:
            self.settle(instance)
        elif not instance.inbox.unheard:  # a step after a step, as most commits are
            try:
                self._begin_asked(instance)
                if not steps.in_flight and (instance not in self.alarms or self.draining or instance.loop.finished):
                    self.settle(instance)  # else it stays until its alarm rings, which looks whether to let it go
            except Exception as error:
                self.stuck(instance, error)

    def await_messages(self, instance: Instance, count: int = 0) -> None:
        """Have a process's messages read before it goes on: ``count`` are in its inbox, as far as is known."""
        instance.inbox.await_messages(count)
        self.events.unheard(instance)

    def heard(
        self,
        instance: Instance,
        messages: Sequence[Message],
        *,
        wanted: bool = False,
        letters: inbox.FoundLetters = inbox.NONE,
    ) -> None:
        """Its unheard messages were read, and ``letters``: begin its next turn, which waited for them if ``wanted``."""
        if instance in self.replaying:
            instance.inbox.await_messages()  # they are read again when it has come to where it was
            return
        counted = instance.inbox.read() if wanted else 0
        if instance.gone or self.unreadable.among(instance, (*letters[1], *messages), counted):
            return
        if release.ordered(messages, instance.inbox.void) is not None:
            self.release(instance)  # the next worker to claim it, with its history, ends it
            return
        if not self.unreadable.hear(instance, messages):
            return
        if letters[0]:
            turn.fetched(instance, letters)
        if instance.inputs or instance.loop.due_timers(self.time.now()):
            self.feed(instance)
        else:
            self.settle(instance)

    # -- steps and timers --------------------------------------------------------------------------------------

    def _begin_asked(self, instance: Instance) -> None:
        """Begin the steps that were asked for: only after the commit that holds the reason for them."""
        if self.draining and not instance.steps.announced:
            return
        for ask in instance.steps.release():
            if ask.slot in instance.loop.open:
                self.agent.begin(instance, ask)

    def step_failed(self, instance: Instance, ask: Ask[Any], failure: Failure) -> None:
        """See StepListener. The failure of an undo is not delivered to the code: the undo gives up."""
        if isinstance(ask, UndoAsk):
            self.telemetry.counters["undos_spent"] += 1
            compensation.gave_up(instance, ask, failure, self.time.now())
            self.settle(instance)
        else:
            instance.deliver(EventType.STEP_FAILED, ask, failure.encode())
            self.feed(instance)

    def step_tried(self, instance: Instance, ask: Ask[Any], tried: FailedAttempt) -> None:
        """See StepListener: once the failure is in the history."""
        instance.steps.tried(ask.slot, tried)
        now = max(self.time.now(), instance.at)
        instance.note(EventType.ATTEMPT_FAILED, now, tried.encode(), name=ask.name, place=ask.place)
        if tried.breaks:
            self.settle(instance)  # it waits for a person, once nothing else of the process is under way
        else:
            self.step_due(instance, ask)

    def step_due(self, instance: Instance, ask: Ask[Any]) -> None:
        """See StepListener: at once if nothing is to be written first."""
        if release.passed(instance, self.time.now()):
            return  # the lease guard lets go of it
        if not unheard(instance.loop, ask):
            instance.steps.ask([ask])
        self.settle(instance)

    def step_begins(self, attempt: AttemptRun) -> None:
        """See StepListener. From its commit on the step begins here or never, also while this worker drains."""
        if attempt.over:
            return
        instance, ask = attempt.instance, attempt.ask
        instance.steps.end(ask.slot)
        if ask.slot in instance.steps.begun_before:
            self.telemetry.counters["step_failures"] += 1
            self.step_failed(instance, ask, UNKNOWN)
            self.parts.alerts.unknown(instance.process, ask, UNKNOWN)
            return
        if not self.draining:
            now = max(self.time.now(), instance.at)
            instance.note(EventType.ATTEMPT_BEGUN, now, None, name=ask.name, place=ask.place)
        instance.steps.ask([ask], probe=None if self.draining else attempt.opened)
        self.settle(instance)

    def came_late(self, attempt: AttemptRun, value: Any) -> None:
        """See StepListener: a step may accept the first answer of any attempt."""
        self.late_results.late(attempt, value)

    def lease_lapsed(self, instance: Instance) -> None:
        """See StepListener."""
        release.lapsed(self, instance)

    def step_refused(self, instance: Instance) -> None:
        """See StepListener."""
        if not instance.gone:
            self.drop(instance)

    def step_kept(self, instance: Instance, message: Message | None) -> None:
        """See StepListener: the process hears the result at once, if it is the next unheard message."""
        inbox = instance.inbox
        if inbox.unheard or message is None or message.number > inbox.heard + 1:
            self.await_messages(instance)
        else:
            self.heard(instance, [message])

    def undo_due(self, instance: Instance, undo: Ask[Any]) -> None:
        """See StepListener: nothing of its process is under way any more."""
        instance.steps.end(undo.slot)
        if not instance.gone:
            instance.outward().put(undo)
            self.settle(instance)

    def step_shown(self, attempt_run: AttemptRun, name: str, raw: bytes) -> None:
        """See StepListener: the value is written when the event loop comes to it."""
        instance = attempt_run.instance
        if not attempt_run.over and published.note_of_step(instance, attempt_run.ask, name, raw, self.time.now()):
            self.agent.loop.call_soon(self.settle, instance)

    def _ring(self, instance: Instance) -> None:
        """The earliest timer of a process is due by the store's clock."""
        if instance.gone:
            return
        if instance.loop.due_timers(self.time.now()):
            self.telemetry.counters["timers"] += 1
            self.feed(instance)
        else:
            self.settle(instance)  # it was held for long enough while it waited for children or messages

    # -- processes that cannot go on -----------------------------------------------------------------------------

    def stuck(self, instance: Instance, error: Exception) -> None:
        """See StepListener."""
        handing_back.stuck(self, instance, error)

    def park(self, instance: Instance, error: BaseException) -> None:
        """Park a process as broken with what is known; what its code did since its last commit is void."""
        if instance.gone:
            return
        if instance.commit is not None:
            instance.leave(error)  # the version of its row must be known first
            return
        release.park(self, instance, error)


def _all_written(instance: Instance) -> bool:
    return not instance.events and (instance.outbox is None or not instance.outbox.pending)
