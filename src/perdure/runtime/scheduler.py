"""The scheduler: gives due processes their turns, has each turn committed, and releases what it asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from perdure import limits
from perdure.clock import microseconds
from perdure.errors import StoreError
from perdure.kernel import transition
from perdure.kernel.claim import Claimed
from perdure.kernel.commit import APPLIED, Commit, CommitAnswer, Verdict
from perdure.kernel.event import EventType
from perdure.kernel.failure import Failure
from perdure.kernel.integrity import flaw
from perdure.kernel.message import Message
from perdure.kernel.names import id_text
from perdure.kernel.process import COMPLETED, RUNNING
from perdure.kernel.retry import FailedAttempt
from perdure.kernel.run import renewed
from perdure.logs import logger
from perdure.runtime import compensation, failure_log, inbox, release, turn, turn_commit
from perdure.runtime.eager_start import EagerStart
from perdure.runtime.events import WorkerEvents
from perdure.runtime.instance import Activation
from perdure.runtime.parts import WorkerParts
from perdure.runtime.ready import Alarms, Ready
from perdure.runtime.release import Unreadable, park, unwritten
from perdure.runtime.replay import replay
from perdure.runtime.shortage import Shortages
from perdure.runtime.steps.agent import Agent
from perdure.runtime.steps.attempt_run import Execution
from perdure.runtime.steps.late_results import Latecomers
from perdure.runtime.turn_commit import bounded, drafted
from perdure.turns.loop import Ask, TurnLoop
from perdure.turns.publication import publications_of
from perdure.turns.renewal import left_over
from perdure.turns.saga import UndoAsk

log = logger("process")


class Scheduler:
    """Holds the processes in hand, and the ids of those ``starting``: their insert is under way."""

    def __init__(self, parts: WorkerParts, events: WorkerEvents) -> None:
        self.parts = parts
        self.events = events
        self.registry = parts.registry
        self.committer = parts.committer
        self.time = parts.time
        self.machine = parts.machine
        self.telemetry = parts.telemetry
        self.lease_seconds = parts.pace.lease_seconds
        self.lease = parts.lease
        self.hold = microseconds(limits.HOLD_SECONDS)
        self.hand: dict[bytes, Activation] = {}
        self.alarms = Alarms(parts.time, self._ring)
        self.shortages = Shortages(parts.telemetry, parts.machine.monotonic, events.worn_out)
        self.agent = Agent(parts, self, self.shortages)
        self.late_results = Latecomers(parts.committer, events.sent)
        self.draining = False
        self.alone = parts.alone
        self.emptied = asyncio.Event()
        self.eager = EagerStart(self)
        self.unreadable = Unreadable(self)
        self.starting = self.eager.starting
        self.ready = Ready(self._turn, parts.time)
        self.feed = self.ready.put

    # -- taking processes in hand ------------------------------------------------------------------------------

    def adopt(self, claimed: Claimed, sent: float) -> None:
        """Take a claimed process in hand: replay what happened, deliver what is unheard, go on."""
        process = claimed.process
        if (late := self.hand.get(process.id)) is not None:
            self.drop(late)  # a command of somebody elsewhere has taken it from us, and it is ours again
        code = self.registry.code_of(process.kind, process.code)
        loop = TurnLoop(process.id, process.id, process.seen if claimed.backlog else 0)
        activation = Activation(process, code, loop, sent + self.lease_seconds)
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
            if release.short(self, activation, error):
                return
            self.unreadable.misfit(activation, claimed.events, error)
            return
        if claimed.was_owned_by is not None:
            self.telemetry.counters["takeovers"] += 1
            evidence = b'{"worker":"%s","lease":"lapsed","origin":"automatic"}' % id_text(claimed.was_owned_by).encode()
            activation.note(EventType.REVIVED, now, evidence)
        if turn.must_fetch(activation):
            self.await_messages(activation)
        elif activation.inputs or activation.loop.due_timers(now):
            self.feed(activation)
        else:
            self._settle(activation)

    def drop(self, activation: Activation) -> None:
        """Let a process go without writing: its lease is lost, or was refused (rule 17)."""
        activation.drop()
        if activation in self.alarms:
            self.alarms.cancel(activation)
        if self.hand.get(activation.process.id) is activation:
            del self.hand[activation.process.id]
            self.events.parted(activation.process.id)
            if not self.hand:
                self.emptied.set()

    def drain(self) -> None:
        """Begin no more steps; a process is handed back as soon as it has none in flight and all is written."""
        self.draining = True
        for activation in list(self.hand.values()):
            if not (activation.steps.in_flight or activation.inputs or activation.events):
                self.hand_back(activation)

    def hand_back(self, activation: Activation, later: int = 0) -> None:
        """Release a process that is stopped in the middle, once its commit in flight is answered: others go on."""
        if activation.gone:
            return
        if activation.commit is not None:
            activation.leave()
            return
        self.drop(activation)
        self._write(activation, transition.released(activation.process, due_at=self.time.now() + later))

    # -- turns -------------------------------------------------------------------------------------------------

    def _turn(self, activation: Activation, now: int) -> None:
        loop = activation.loop
        if not loop.runs:
            self.eager.open(activation)
            return
        finishing = loop.finished and activation.commit is not None
        if finishing or activation.inbox.fetching or activation.trouble is not None:
            return  # what has come in waits for the answer to the commit in flight, or for letters that came before it
        self.telemetry.counters["turns"] += 1
        try:
            turn.run(activation, now)
            turn.gather(activation)
        except Exception as error:  # a misfit, or code that runs in a circle: a person must see it
            if not release.short(self, activation, error):
                self.park(activation, error)
        else:
            if loop.mailboxes and turn.must_fetch(activation):
                self.await_messages(activation)
            elif activation.inputs:  # what it has asked for is known already
                self.feed(activation)
            self._settle(activation)

    def _settle(self, activation: Activation) -> None:
        """Write what has happened, or release what was asked for if there is nothing to write."""
        if activation.commit is not None or activation.gone or activation.inbox.unheard:
            return
        try:
            self._go_on(activation)
        except Exception as error:  # a defect of ours must not leave a process in hand that nobody moves
            if release.short(self, activation, error):
                return
            log.exception("process %s cannot go on; please report it", id_text(activation.process.id))
            self.park(activation, error)

    def _go_on(self, activation: Activation) -> None:
        steps = activation.steps
        if steps.releasing:
            self._release(activation)
        loop = activation.loop
        written = (
            not (activation.events or loop.finished)
            and _all_written(activation)
            and loop.state == activation.process.state
        )
        if written and steps.asked:
            steps.expect()
            self._release(activation)
        if self.draining and written and not steps.in_flight and not activation.inputs:
            self.hand_back(activation)
            return
        if loop.renewal is not None and _all_written(activation):
            now = max(self.time.now(), activation.at)
            commit = renewed(activation.process, loop.renewal, loop.late, left_over(loop), now=now)
            activation.handed_over(commit)
            self._write(activation, commit)
            return
        outcome = turn_commit.outcome(activation, self.time, self.hold)
        if outcome.status is RUNNING and not loop.finished:
            if activation.number >= limits.HISTORY_WARN_EVENTS:
                outcome = bounded(activation, outcome)
            if outcome.busy:
                if loop.timers.open or activation.outbox is not None or activation.inbox.patience:
                    self.alarms.set(activation)
                if written:
                    return
        self._write(activation, drafted(self.parts, activation, outcome))

    # -- commits -----------------------------------------------------------------------------------------------

    def _write(self, activation: Activation, commit: Commit) -> None:
        self.committer.commit(commit, partial(self._answered, activation, commit))

    def _answered(self, activation: Activation, commit: Commit, answer: CommitAnswer | StoreError) -> None:
        if isinstance(answer, CommitAnswer):
            if answer.verdict is APPLIED:
                self.telemetry.counters["commits"] += 1
                if commit.starts or commit.sends:
                    self.events.posted(commit)
                if not activation.gone:
                    activation.committed(commit.after, self.committer.sent + self.lease_seconds)
                    self.applied(activation, commit, answer.inbox)
                elif commit.lease and commit.after.id not in self.hand:
                    self.events.strayed()  # let go while this was under way, which has given it another lease
                return
            if answer.verdict is Verdict.READ_FIRST and not activation.gone:
                self.telemetry.counters["commits_read_first"] += 1
                activation.take_back(commit)
                self.await_messages(activation, answer.inbox)
                return
            self.telemetry.counters["commits_refused"] += 1
            self.late_results.refused(commit.after)
            if not activation.gone:
                log.info("process %s: a late answer was refused", id_text(activation.process.id))
                self.drop(activation)
            return
        if not activation.gone:
            activation.unwritten()
            unwritten(self, activation, answer)

    def applied(self, activation: Activation, commit: Commit, inbox: int) -> None:
        """A commit has been written: release what waited for it, let the process go, or go on."""
        process = commit.after
        if process.owner is None:
            # If we die here the row is free and due at its time; nobody waits for us.
            if process.status is not RUNNING:
                self.telemetry.counters[process.status.value] += 1
                if process.status is not COMPLETED:
                    failure_log.ended(process)
                self.events.ended(process, self.committer.sent)
            self.drop(activation)
            if process.status is RUNNING and process.due_at is not None:
                self.events.due(self.time.now() if inbox > process.seen else process.due_at)
            return
        steps = activation.steps
        if activation.trouble is not None:
            self.park(activation, activation.trouble)
        elif activation.leaving or (self.alone and not process.deaths):
            self.hand_back(activation)  # it goes on elsewhere: we stop, or it is no suspect any more
        elif inbox > activation.inbox.heard:
            self.await_messages(activation, inbox)  # rule 18: they open the next turn before outputs are released
        elif activation.events or steps.asked or activation.loop.timers.open or activation.outbox is not None:
            self._settle(activation)
        else:  # a step after a step, as most commits are
            self._release(activation)
            if not steps.in_flight:
                self._settle(activation)

    def await_messages(self, activation: Activation, count: int = 0) -> None:
        """Have its messages read before it goes on: ``count`` are in the inbox, as far as is known."""
        activation.inbox.await_messages(count)
        self.events.unheard(activation)

    def heard(
        self,
        activation: Activation,
        messages: Sequence[Message],
        *,
        wanted: bool = False,
        letters: inbox.Found = inbox.NONE,
    ) -> None:
        """What it had not heard was read, and ``letters``: its next turn begins, which waits for them if ``wanted``."""
        counted = activation.inbox.read() if wanted else 0
        if activation.gone or self.unreadable.among(activation, (*letters[1], *messages), counted):
            return
        if release.ordered(messages, activation.inbox.void) is not None:
            self.hand_back(activation)  # whoever claims it, with its history, ends it
            return
        if not self.unreadable.hear(activation, messages):
            return
        if letters[0]:
            turn.fetched(activation, letters)
        if activation.inputs or activation.loop.due_timers(self.time.now()):
            self.feed(activation)
        else:
            self._settle(activation)

    # -- steps and timers --------------------------------------------------------------------------------------

    def _release(self, activation: Activation) -> None:
        """Let what was asked for begin: only after the commit that holds the reason for it."""
        if self.draining:
            return
        for ask in activation.steps.release():
            if ask.slot in activation.loop.open:
                self.agent.begin(activation, ask)

    def step_failed(self, activation: Activation, ask: Ask[Any], failure: Failure) -> None:
        """See StepListener. Of an undo the code hears nothing: it gives up."""
        if isinstance(ask, UndoAsk):
            self.telemetry.counters["undos_spent"] += 1
            compensation.gave_up(activation, ask, failure, self.time.now())
            self._settle(activation)
        else:
            activation.deliver(EventType.STEP_FAILED, ask, failure.encode())
            self.feed(activation)

    def step_tried(self, activation: Activation, ask: Ask[Any], tried: FailedAttempt) -> None:
        """See StepListener: once the failure is in the history."""
        activation.steps.tried(ask.slot, tried)
        now = max(self.time.now(), activation.at)
        activation.note(EventType.ATTEMPT_FAILED, now, tried.encode(), name=ask.name, place=ask.place)
        self.step_due(activation, ask)

    def step_due(self, activation: Activation, ask: Ask[Any]) -> None:
        """See StepListener: at once if nothing is to be written first."""
        if release.passed(activation, self.time.now()):
            return  # the pulse lets go of it
        activation.steps.ask([ask], activation.process.run)
        self._settle(activation)

    def came_late(self, attempt: Execution, value: Any) -> None:
        """See StepListener: a step may accept the first answer of any attempt."""
        self.late_results.late(attempt, value)

    def lease_lapsed(self, instance: Activation) -> None:
        """See StepListener."""
        release.lapsed(self, instance)

    def step_refused(self, instance: Activation) -> None:
        """See StepListener."""
        if not instance.gone:
            self.drop(instance)

    def step_kept(self, instance: Activation, message: Message | None) -> None:
        """See StepListener: it is heard at once, if it is the next message that is to be heard."""
        inbox = instance.inbox
        if inbox.unheard or message is None or message.number > inbox.heard + 1:
            self.await_messages(instance)
        else:
            self.heard(instance, [message])

    def undo_due(self, activation: Activation, undo: Ask[Any]) -> None:
        """See StepListener: nothing of its process is under way any more."""
        activation.steps.end(undo.slot)
        if not activation.gone:
            activation.outward().put(undo)
            self._settle(activation)

    def step_shown(self, execution: Execution, name: str, raw: bytes) -> None:
        """See StepListener: it is written when the step lets us."""
        activation, ask = execution.activation, execution.ask
        if execution.over or activation.gone:
            return
        publications_of(activation.loop)
        now = max(self.time.now(), activation.at)
        activation.note(EventType.PUBLISHED, now, raw, name=name, place=f"{ask.name}:{ask.place}")
        self.agent.loop.call_soon(self._settle, activation)

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
            activation.leave(error)  # its own version must be known first
            return
        park(self, activation, error)


def _all_written(activation: Activation) -> bool:
    return not activation.events and (activation.outbox is None or not activation.outbox.pending)
