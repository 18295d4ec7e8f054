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
from perdure.runtime.instance import Activation
from perdure.runtime.ready import Alarms, Ready
from perdure.runtime.release import Unreadable, park, unwritten
from perdure.runtime.replay import replay
from perdure.runtime.steps.agent import Agent
from perdure.runtime.store_time import StoreTime
from perdure.runtime.turn_commit import bounded, drafted
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
        self.hand: dict[bytes, Activation] = {}
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
        self.unheard: Callable[[Activation], None] = lambda activation: None
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
        if (late := self.hand.get(process.id)) is not None:
            self.drop(late)  # a command of somebody elsewhere has taken it from us, and it is ours again
        code = self.registry.code_of(process.kind, process.code)
        activation = Activation(process, code, TurnLoop(process.id, process.id))
        activation.lease_end = sent + self.lease_seconds
        activation.loop.backlog = process.seen if claimed.backlog else 0
        self.hand[process.id] = activation
        self.telemetry.counters["claims"] += 1
        now = self.time.now()
        trouble = claimed.trouble or flaw(process, claimed.events, claimed.messages)
        if trouble is not None:
            self.unreadable.let_go(activation, trouble)
            return
        try:
            if release.carried_out(self, activation, claimed) or release.too_late(self, activation):
                return
            replay(activation, claimed.events, claimed.messages)
            self.telemetry.counters["messages"] += activation.hear(claimed.messages)
        except Exception as error:  # a misfit, or code or a payload that cannot be opened: a person must see it
            if self._short(activation, error):
                return
            self.unreadable.misfit(activation, claimed.events, error)
            return
        if claimed.was_owned_by is not None:
            self.telemetry.counters["takeovers"] += 1
            evidence = b'{"worker":"%s","lease":"lapsed","origin":"automatic"}' % id_text(claimed.was_owned_by).encode()
            activation.note(EventType.REVIVED, now, evidence)
        if inbox.to_be_read(activation):
            self._listen(activation)
        elif activation.inputs or activation.loop.due_timers(now):
            self.feed(activation)
        else:
            self._settle(activation)

    def drop(self, activation: Activation) -> None:
        """Let a process go without writing: its lease is lost, or was refused (rule 17)."""
        activation.drop()
        if self.hand.get(activation.process.id) is activation:
            del self.hand[activation.process.id]
            self.parted(activation.process.id)
            self.room()
            if not self.hand:
                self.emptied.set()

    def drain(self) -> None:
        """Begin no more steps; a process is handed back as soon as it has none in flight and all is written."""
        self.draining = True
        for activation in list(self.hand.values()):
            if not (activation.in_flight or activation.inputs or activation.events):
                self.hand_back(activation)

    def hand_back(self, activation: Activation, later: int = 0) -> None:
        """Release a process that is stopped in the middle, once its commit in flight is answered: others go on."""
        if activation.gone:
            return
        if activation.commit is not None:
            activation.leaving = True
            return
        self.drop(activation)
        self._write(activation, transition.released(activation.process, due_at=self.time.now() + later))

    # -- turns -------------------------------------------------------------------------------------------------

    def _turn(self, activation: Activation, now: int) -> None:
        if activation.told is not None:
            self.eager.open(activation)
            return
        finishing = activation.loop.finished and activation.commit is not None
        if finishing or activation.fetching or activation.trouble is not None:
            return  # what has come in waits for the answer to the commit in flight, or for letters that came before it
        self.telemetry.counters["turns"] += 1
        try:
            activation.turn(now)
            activation.gather()
        except Exception as error:  # a misfit, or code that runs in a circle: a person must see it
            if not self._short(activation, error):
                self.park(activation, error)
        else:
            if activation.loop.mailboxes and inbox.to_be_read(activation):
                self._listen(activation)
            elif activation.inputs:  # what it has asked for is known already
                self.feed(activation)
            self._settle(activation)

    def _settle(self, activation: Activation) -> None:
        """Write what has happened, or release what was asked for if there is nothing to write."""
        if activation.commit is not None or activation.gone or activation.unheard:
            return
        try:
            self._go_on(activation)
        except Exception as error:  # a defect of ours must not leave a process in hand that nobody moves
            if self._short(activation, error):
                return
            log.exception("process %s cannot go on; please report it", id_text(activation.process.id))
            self.park(activation, error)

    def _go_on(self, activation: Activation) -> None:
        if activation.releasing:
            self._release(activation)
        loop = activation.loop
        written = not loop.finished and _all_written(activation) and loop.state == activation.process.state
        if written and activation.asked:
            activation.expect()
            self._release(activation)
        if self.draining and written and not activation.in_flight and not activation.inputs:
            self.hand_back(activation)
            return
        if loop.renewal is not None and _all_written(activation):
            now = max(self.time.now(), activation.at)
            self._write(activation, renewed(activation.process, loop.renewal, loop.late, left_over(loop), now=now))
            return
        outcome = turn_commit.outcome(activation, self.time, self.hold)
        if outcome.status is RUNNING and not loop.finished:
            outcome = bounded(activation, outcome)
            if outcome.busy:
                if loop.timers.open or activation.outbox is not None or activation.patience:
                    self.alarms.set(activation)
                if written:
                    return
        self._write(activation, drafted(self, activation, outcome))

    # -- commits -----------------------------------------------------------------------------------------------

    def _write(self, activation: Activation, commit: Commit) -> None:
        activation.commit = commit
        self.committer.commit(commit, partial(self._answered, activation))

    def _answered(self, activation: Activation, answer: CommitAnswer | StoreError) -> None:
        commit = activation.commit
        assert commit is not None
        activation.commit = None
        if isinstance(answer, CommitAnswer):
            if answer.verdict is APPLIED:
                self.telemetry.counters["commits"] += 1
                if commit.starts or commit.sends:
                    self.posted(commit)
                if not activation.gone:
                    # It may have been long under way, and a beat has renewed the lease since.
                    activation.lease_end = max(activation.lease_end, self.committer.sent + self.lease_seconds)
                    self.applied(activation, commit, answer.inbox)
                elif commit.lease and commit.after.id not in self.hand:
                    self.strayed()  # let go while this was under way, which has given it another lease
                return
            if answer.verdict is Verdict.READ_FIRST and not activation.gone:
                self.telemetry.counters["commits_read_first"] += 1
                activation.take_back(commit)
                self._listen(activation, answer.inbox)
                return
            self.telemetry.counters["commits_refused"] += 1
            self.agent.refused(commit.after)
            if not activation.gone:
                log.info("process %s: a late answer was refused", id_text(activation.process.id))
                self.drop(activation)
            return
        if not activation.gone:
            unwritten(self, activation, answer)

    def applied(self, activation: Activation, commit: Commit, inbox: int) -> None:
        """A commit has been written: release what waited for it, let the process go, or go on."""
        process = activation.process = commit.after
        if process.owner is None:
            # If we die here the row is free and due at its time; nobody waits for us.
            if process.status is not RUNNING:
                if process.status is COMPLETED:
                    self.telemetry.counters["completed"] += 1
                else:
                    self.telemetry.counters[process.status.value] += 1
                    failure_log.ended(process)
                self.ended(process, self.committer.sent)
            self.drop(activation)
            if process.status is RUNNING and process.due_at is not None:
                self.waiting(self.time.now() if inbox > process.seen else process.due_at)
            return
        if activation.trouble is not None:
            self.park(activation, activation.trouble)
        elif activation.leaving or (self.alone and not process.deaths):
            self.hand_back(activation)  # it goes on elsewhere: we stop, or it is no suspect any more
        elif inbox > activation.heard:
            self._listen(activation, inbox)  # rule 18: unheard messages open the next turn before outputs are released
        elif activation.events or activation.asked or activation.loop.timers.open or activation.outbox is not None:
            self._settle(activation)
        else:  # a step after a step, as most commits are
            self._release(activation)
            if not activation.in_flight:
                self._settle(activation)

    def _listen(self, activation: Activation, inbox: int = -1) -> None:
        activation.unheard = inbox or -1
        self.unheard(activation)

    def heard(
        self,
        activation: Activation,
        messages: Sequence[Message],
        *,
        wanted: bool = False,
        letters: inbox.Found = inbox.NONE,
    ) -> None:
        """What it had not heard was read, and ``letters``: its next turn begins, which waits for them if ``wanted``."""
        counted = activation.unheard if wanted else 0
        if wanted:
            activation.unheard = 0
        if activation.gone or self.unreadable.among(activation, (*letters[1], *messages), counted):
            return
        if release.ordered(messages, activation.void) is not None:
            self.hand_back(activation)  # whoever claims it, with its history, ends it
            return
        if not self.unreadable.hear(activation, messages):
            return
        if letters[0]:
            inbox.fetched(activation, letters)
        if activation.inputs or activation.loop.due_timers(self.time.now()):
            self.feed(activation)
        else:
            self._settle(activation)

    # -- steps and timers --------------------------------------------------------------------------------------

    def _release(self, activation: Activation) -> None:
        """Let what was asked for begin: only after the commit that holds the reason for it."""
        if self.draining:
            return
        released, activation.releasing = activation.releasing, []
        for ask in released:
            if (ask.name, ask.place) in activation.loop.open:
                self.agent.begin(activation, ask)

    def _step_answered(self, activation: Activation, type: EventType, ask: Ask[Any], payload: bytes | None) -> None:
        """A step is over, well or badly: its answer opens the next turn."""
        if type is EventType.STEP_FAILED and isinstance(ask, UndoAsk):
            self.telemetry.counters["undos_spent"] += 1
            compensation.gave_up(activation, ask, Failure.decode(payload or b"{}"), self.time.now())
            self._settle(activation)
            return
        activation.inputs.append((type, ask, payload))
        self.feed(activation)

    def _step_tried(self, activation: Activation, ask: Ask[Any], tried: FailedAttempt) -> None:
        """An attempt failed and another will follow, once the failure is in the history."""
        activation.tried((ask.name, ask.place), tried)
        now = max(self.time.now(), activation.at)
        activation.note(EventType.ATTEMPT_FAILED, now, tried.encode(), name=ask.name, place=ask.place)
        self._step_due(activation, ask)

    def _step_due(self, activation: Activation, ask: Ask[Any]) -> None:
        """Another attempt may begin: at once if nothing is to be written first."""
        if release.passed(activation, self.time.now()):
            return  # the pulse lets go of it
        activation.asked.append(ask)
        self._settle(activation)

    def _ring(self, activation: Activation) -> None:
        """The earliest timer of a process in hand is due by the store's clock."""
        if activation.gone:
            return
        if activation.loop.due_timers(self.time.now()):
            self.telemetry.counters["timers"] += 1
            self.feed(activation)
        else:
            self._settle(activation)  # children were awaited in hand for long enough

    # -- processes that cannot go on -----------------------------------------------------------------------------

    def park(self, activation: Activation, error: BaseException) -> None:
        """Park a process as broken with what is known; what it did not write is void."""
        if activation.gone:
            return
        if activation.commit is not None:
            activation.trouble = error  # its own version must be known first
            return
        park(self, activation, error)

    def _short(self, activation: Activation, error: BaseException) -> bool:
        """Hand a process back if the error is a shortage of this worker; for a while, then it counts as its own."""
        what = exhausted(error)
        if what is None or not self.agent.shortages.patient(activation.process.id):
            return False
        self.agent.shortages.refused(what, f"process {id_text(activation.process.id)}: {error!r:.200}")
        shortage.put_off(self, activation)
        return True


def _all_written(activation: Activation) -> bool:
    return not activation.events and (activation.outbox is None or not activation.outbox.pending)
