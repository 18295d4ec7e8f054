"""The scheduler: gives due processes their turns, has each turn committed, and releases what it asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from perdure import limits
from perdure.authoring.registry import Registry
from perdure.authoring.workflow import Workflow
from perdure.clock import Machine, microseconds
from perdure.errors import StoreError
from perdure.exhaustion import exhausted
from perdure.kernel import transition
from perdure.kernel.claim import Claimed
from perdure.kernel.commit import APPLIED, Commit, CommitAnswer, Verdict
from perdure.kernel.event import EventType
from perdure.kernel.failure import Failure
from perdure.kernel.integrity import flaw
from perdure.kernel.message import Message
from perdure.kernel.names import id_text
from perdure.kernel.process import COMPLETED, RUNNING, Process
from perdure.kernel.retry import FailedAttempt
from perdure.kernel.run import renewed
from perdure.logs import logger
from perdure.runtime import compensation, failure_log, inbox, release, shortage, turn_commit
from perdure.runtime.committer import Committer
from perdure.runtime.eager_start import EagerStart
from perdure.runtime.heartbeat import Incarnation
from perdure.runtime.instance import Instance
from perdure.runtime.ready import Alarms, Ready
from perdure.runtime.release import Unreadable, park, unwritten
from perdure.runtime.replay import replay
from perdure.runtime.steps.agent import Agent
from perdure.runtime.store_time import StoreTime
from perdure.runtime.turn_commit import drafted, limited
from perdure.telemetry import Telemetry
from perdure.turns.loop import Ask, TurnLoop
from perdure.turns.renewal import left_over
from perdure.turns.saga import UndoAsk

log = logger("process")


class Scheduler:
    """Holds the processes in hand, and the ids of those ``starting``: their insert is under way.

    ``ended`` is told of every process whose end was committed here, ``parted`` of every other that was let go.
    ``room`` is told whenever a process was let go.
    ``strayed`` is told when a row may still be ours by the store that was let go here without writing.
    ``posted`` is told of every commit that started children or sent messages.
    ``waiting`` is told the due time of every row that was let go, so that the claims look again in time.
    """

    def __init__(
        self,
        incarnation: Incarnation,
        registry: Registry,
        committer: Committer,
        time: StoreTime,
        machine: Machine,
        telemetry: Telemetry,
        *,
        lease: float = limits.LEASE_SECONDS,
    ) -> None:
        self.incarnation = incarnation
        self.registry = registry
        self.committer = committer
        self.time = time
        self.machine = machine
        self.telemetry = telemetry
        self.lease_seconds = lease
        self.lease = microseconds(lease)
        self.hold = microseconds(limits.HOLD_SECONDS)
        self.instances: dict[bytes, Instance] = {}
        self.starting: set[bytes] = set()
        self.alarms = Alarms(time, self._ring)
        self.agent = Agent(telemetry, time, machine)
        self.agent.answered = self._step_answered
        self.agent.tried = self._step_tried
        self.agent.due = self._step_due
        self.agent.queued = partial(compensation.queue, self._settle)
        self.agent.lapsed = partial(release.lapsed, self)
        self.agent.shown = partial(turn_commit.by_step, self._settle)
        self.ended: Callable[[Process, float], None] = lambda process, sent: None
        self.parted: Callable[[bytes], None] = lambda id: None
        self.room: Callable[[], None] = lambda: None
        self.strayed: Callable[[], None] = lambda: None
        self.waiting: Callable[[int], None] = lambda due_at: None
        self.unheard: Callable[[Instance], None] = lambda instance: None
        self.posted: Callable[[Commit], None] = lambda commit: None
        self.draining = False
        self.alone = False
        self.emptied = asyncio.Event()
        self.eager = EagerStart(self)
        self.unreadable = Unreadable(self)
        self.feed = Ready(self._turn, time).put

    # -- taking processes in hand ------------------------------------------------------------------------------

    def start(
        self,
        process: Process,
        workflow: Workflow[Any, Any],
        answered: Callable[[Any], None],
        messages: tuple[Message, ...] = (),
    ) -> None:
        """Run the first turn of a process that is started here and store both in one insert; see :mod:`eager`."""
        self.eager.start(process, workflow, answered, messages)

    def adopt(self, claimed: Claimed, sent: float) -> None:
        """Take a claimed process in hand: replay what happened, deliver what is unheard, go on."""
        process = claimed.process
        if (late := self.instances.get(process.id)) is not None:
            self.drop(late)  # a command of somebody elsewhere has taken it from us, and it is ours again
        code = self.registry.code_of(process.kind, process.code)
        instance = Instance(process, code, TurnLoop(process.id, process.id))
        instance.lease_end = sent + self.lease_seconds
        instance.loop.backlog = process.seen if claimed.backlog else 0
        self.instances[process.id] = instance
        self.telemetry.counters["claims"] += 1
        now = self.time.now()
        trouble = claimed.trouble or flaw(process, claimed.events, claimed.messages)
        if trouble is not None:
            self.unreadable.let_go(instance, trouble)
            return
        try:
            if release.carried_out(self, instance, claimed) or release.too_late(self, instance):
                return
            replay(instance, claimed.events, claimed.messages)
            self.telemetry.counters["messages"] += instance.hear(claimed.messages)
        except Exception as error:  # a misfit, or code or a payload that cannot be opened: a person must see it
            if self._short(instance, error):
                return
            self.unreadable.misfit(instance, claimed.events, error)
            return
        if claimed.was_owned_by is not None:
            self.telemetry.counters["takeovers"] += 1
            evidence = b'{"worker":"%s","lease":"lapsed","origin":"automatic"}' % id_text(claimed.was_owned_by).encode()
            instance.note(EventType.REVIVED, now, evidence)
        if inbox.to_be_read(instance):
            self._listen(instance)
        elif instance.inputs or instance.loop.due_timers(now):
            self.feed(instance)
        else:
            self._settle(instance)

    def drop(self, instance: Instance) -> None:
        """Let a process go without writing: its lease is lost, or was refused (rule 17)."""
        instance.drop()
        if self.instances.get(instance.process.id) is instance:
            del self.instances[instance.process.id]
            self.parted(instance.process.id)
            self.room()
            if not self.instances:
                self.emptied.set()

    def drain(self) -> None:
        """Begin no more steps; a process is handed back as soon as it has none in flight and all is written."""
        self.draining = True
        for instance in list(self.instances.values()):
            if not (instance.in_flight or instance.inputs or instance.events):
                self.release(instance)

    def release(self, instance: Instance, later: int = 0) -> None:
        """Release a process that is stopped in the middle, once its commit in flight is answered: others go on."""
        if instance.gone:
            return
        if instance.commit is not None:
            instance.leaving = True
            return
        self.drop(instance)
        self._write(instance, transition.released(instance.process, due_at=self.time.now() + later))

    # -- turns -------------------------------------------------------------------------------------------------

    def _turn(self, instance: Instance, now: int) -> None:
        if instance.told is not None:
            self.eager.open(instance)
            return
        finishing = instance.loop.finished and instance.commit is not None
        if finishing or instance.fetching or instance.trouble is not None:
            return  # what has come in waits for the answer to the commit in flight, or for letters that came before it
        self.telemetry.counters["turns"] += 1
        try:
            instance.turn(now)
            instance.gather()
        except Exception as error:  # a misfit, or code that runs in a circle: a person must see it
            if not self._short(instance, error):
                self.park(instance, error)
        else:
            if instance.loop.mailboxes and inbox.to_be_read(instance):
                self._listen(instance)
            elif instance.inputs:  # what it has asked for is known already
                self.feed(instance)
            self._settle(instance)

    def _settle(self, instance: Instance) -> None:
        """Write what has happened, or release what was asked for if there is nothing to write."""
        if instance.commit is not None or instance.gone or instance.unheard:
            return
        try:
            self._go_on(instance)
        except Exception as error:  # a defect of ours must not leave a process in hand that nobody moves
            if self._short(instance, error):
                return
            log.exception("process %s cannot go on; please report it", id_text(instance.process.id))
            self.park(instance, error)

    def _go_on(self, instance: Instance) -> None:
        if instance.releasing:
            self._begin_asked(instance)
        loop = instance.loop
        written = not loop.finished and _all_written(instance) and loop.state == instance.process.state
        if written and instance.asked:
            instance.expect()
            self._begin_asked(instance)
        if self.draining and written and not instance.in_flight and not instance.inputs:
            self.release(instance)
            return
        if loop.renewal is not None and _all_written(instance):
            now = max(self.time.now(), instance.at)
            self._write(instance, renewed(instance.process, loop.renewal, loop.late, left_over(loop), now=now))
            return
        outcome = turn_commit.outcome(instance, self.time, self.hold)
        if outcome.status is RUNNING and not loop.finished:
            outcome = limited(instance, outcome)
            if outcome.busy:
                if loop.timers.open or instance.outbox is not None or instance.patience:
                    self.alarms.set(instance)
                if written:
                    return
        self._write(instance, drafted(self, instance, outcome))

    # -- commits -----------------------------------------------------------------------------------------------

    def _write(self, instance: Instance, commit: Commit) -> None:
        instance.commit = commit
        self.committer.commit(commit, partial(self._answered, instance))

    def _answered(self, instance: Instance, answer: CommitAnswer | StoreError) -> None:
        commit = instance.commit
        assert commit is not None
        instance.commit = None
        if isinstance(answer, CommitAnswer):
            if answer.verdict is APPLIED:
                self.telemetry.counters["commits"] += 1
                if commit.starts or commit.sends:
                    self.posted(commit)
                if not instance.gone:
                    # It may have been long under way, and a beat has renewed the lease since.
                    instance.lease_end = max(instance.lease_end, self.committer.sent + self.lease_seconds)
                    self.applied(instance, commit, answer.inbox)
                elif commit.lease and commit.after.id not in self.instances:
                    self.strayed()  # let go while this was under way, which has given it another lease
                return
            if answer.verdict is Verdict.READ_FIRST and not instance.gone:
                self.telemetry.counters["commits_read_first"] += 1
                instance.take_back(commit)
                self._listen(instance, answer.inbox)
                return
            self.telemetry.counters["commits_refused"] += 1
            self.agent.refused(commit.after)
            if not instance.gone:
                log.info("process %s: a late answer was refused", id_text(instance.process.id))
                self.drop(instance)
            return
        if not instance.gone:
            unwritten(self, instance, answer)

    def applied(self, instance: Instance, commit: Commit, inbox: int) -> None:
        """A commit has been written: release what waited for it, let the process go, or go on."""
        process = instance.process = commit.after
        if process.owner is None:
            # If we die here the row is free and due at its time; nobody waits for us.
            if process.status is not RUNNING:
                if process.status is COMPLETED:
                    self.telemetry.counters["completed"] += 1
                else:
                    self.telemetry.counters[process.status.value] += 1
                    failure_log.ended(process)
                self.ended(process, self.committer.sent)
            self.drop(instance)
            if process.status is RUNNING and process.due_at is not None:
                self.waiting(self.time.now() if inbox > process.seen else process.due_at)
            return
        if instance.trouble is not None:
            self.park(instance, instance.trouble)
        elif instance.leaving or (self.alone and not process.deaths):
            self.release(instance)  # it goes on elsewhere: we stop, or it is no suspect any more
        elif inbox > instance.heard:
            self._listen(instance, inbox)  # rule 18: unheard messages open the next turn before outputs are released
        elif instance.events or instance.asked or instance.loop.timers.open or instance.outbox is not None:
            self._settle(instance)
        else:  # a step after a step, as most commits are
            self._begin_asked(instance)
            if not instance.in_flight:
                self._settle(instance)

    def _listen(self, instance: Instance, inbox: int = -1) -> None:
        instance.unheard = inbox or -1
        self.unheard(instance)

    def heard(
        self,
        instance: Instance,
        messages: Sequence[Message],
        *,
        wanted: bool = False,
        letters: inbox.FoundLetters = inbox.NONE,
    ) -> None:
        """What it had not heard was read, and ``letters``: its next turn begins, which waits for them if ``wanted``."""
        counted = instance.unheard if wanted else 0
        if wanted:
            instance.unheard = 0
        if instance.gone or self.unreadable.among(instance, (*letters[1], *messages), counted):
            return
        if release.ordered(messages, instance.void) is not None:
            self.release(instance)  # whoever claims it, with its history, ends it
            return
        if not self.unreadable.hear(instance, messages):
            return
        if letters[0]:
            inbox.fetched(instance, letters)
        if instance.inputs or instance.loop.due_timers(self.time.now()):
            self.feed(instance)
        else:
            self._settle(instance)

    # -- steps and timers --------------------------------------------------------------------------------------

    def _begin_asked(self, instance: Instance) -> None:
        """Let what was asked for begin: only after the commit that holds the reason for it."""
        if self.draining:
            return
        released, instance.releasing = instance.releasing, []
        for ask in released:
            if (ask.name, ask.place) in instance.loop.open:
                self.agent.begin(instance, ask)

    def _step_answered(self, instance: Instance, type: EventType, ask: Ask[Any], payload: bytes | None) -> None:
        """A step is over, well or badly: its answer opens the next turn."""
        if type is EventType.STEP_FAILED and isinstance(ask, UndoAsk):
            self.telemetry.counters["undos_spent"] += 1
            compensation.gave_up(instance, ask, Failure.decode(payload or b"{}"), self.time.now())
            self._settle(instance)
            return
        instance.inputs.append((type, ask, payload))
        self.feed(instance)

    def _step_tried(self, instance: Instance, ask: Ask[Any], tried: FailedAttempt) -> None:
        """An attempt failed and another will follow, once the failure is in the history."""
        instance.tried((ask.name, ask.place), tried)
        now = max(self.time.now(), instance.at)
        instance.note(EventType.ATTEMPT_FAILED, now, tried.encode(), name=ask.name, place=ask.place)
        self._step_due(instance, ask)

    def _step_due(self, instance: Instance, ask: Ask[Any]) -> None:
        """Another attempt may begin: at once if nothing is to be written first."""
        if release.passed(instance, self.time.now()):
            return  # the pulse lets go of it
        instance.asked.append(ask)
        self._settle(instance)

    def _ring(self, instance: Instance) -> None:
        """The earliest timer of a process in hand is due by the store's clock."""
        if instance.gone:
            return
        if instance.loop.due_timers(self.time.now()):
            self.telemetry.counters["timers"] += 1
            self.feed(instance)
        else:
            self._settle(instance)  # children were awaited in hand for long enough

    # -- processes that cannot go on -----------------------------------------------------------------------------

    def park(self, instance: Instance, error: BaseException) -> None:
        """Park a process as broken with what is known; what it did not write is void."""
        if instance.gone:
            return
        if instance.commit is not None:
            instance.trouble = error  # its own version must be known first
            return
        park(self, instance, error)

    def _short(self, instance: Instance, error: BaseException) -> bool:
        """Hand a process back if the error is a shortage of this worker; for a while, then it counts as its own."""
        what = exhausted(error)
        if what is None or not self.agent.shortages.patient(instance.process.id):
            return False
        self.agent.shortages.refused(what, f"process {id_text(instance.process.id)}: {error!r:.200}")
        shortage.put_off(self, instance)
        return True


def _all_written(instance: Instance) -> bool:
    return not instance.events and (instance.outbox is None or not instance.outbox.pending)
