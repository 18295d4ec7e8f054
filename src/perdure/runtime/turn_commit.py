"""A turn becomes a commit: what the turns of a process have left behind, judged, and written as one record.

``drafted`` makes the commit. ``outcome`` says how the process stands, and whether it stays in memory though it only
waits. A parent does for a moment, since children answer soon. So does a process with a long history that has just heard
a message: to claim it again means to read and replay all of it, while the worker's other processes wait. ``limited``
warns people of a history that grows long, and holds the process at the limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure import limits
from perdure.clock import SECOND, microseconds
from perdure.kernel import transition
from perdure.kernel.breaker import BREAKER_MARK
from perdure.kernel.command import sooner
from perdure.kernel.commit import STILL_BUSY, Commit, Outcome, Removal, Start
from perdure.kernel.event import EventType
from perdure.kernel.failure import Failure, safe_text
from perdure.kernel.message import Message
from perdure.kernel.names import id_text
from perdure.kernel.process import COMPLETED, FINAL, RUNNING, Process, Status
from perdure.kernel.quarantine import is_suspect
from perdure.kernel.retry import Retry
from perdure.kernel.run import renewed
from perdure.kernel.workflow_retry import follows, number_of, tried_again
from perdure.logs import logger
from perdure.runtime import compensation, failure_log, published
from perdure.runtime.instance import next_at
from perdure.runtime.store_time import StoreTime
from perdure.turns.renewal import Broken, left_over
from perdure.turns.saga import unheard

if TYPE_CHECKING:
    from perdure.runtime.instance import Instance
    from perdure.runtime.parts import WorkerParts

log = logger("process")


def drafted(parts: WorkerParts, instance: Instance, outcome: Outcome, *, inward: bool = False) -> Commit:
    """The commit with this outcome; ``inward`` leaves out the starts and messages that go to other processes."""
    steps = instance.steps
    cleared = steps.inherited is not None and steps.cleared
    process = instance.process
    shown = process.progress
    if shown is not None or steps.reported:
        process = _progressed(instance, process)
    inbox = instance.inbox
    if inbox.until is not None:
        process = replace(process, deadline=sooner(process.deadline, inbox.until))
    shows = instance.loop.publications is not None
    if shows:
        process = published.shown(instance, process)
    starts: tuple[Start, ...] = ()
    sends: tuple[Message, ...] = ()
    if instance.outbox is not None and not inward:
        starts, sends = instance.outbox.dispatch(instance, parts.machine)
    if outcome.busy or outcome.status in FINAL:
        idle_at = 0
    else:
        idle_at = parts.time.idle_at(instance.workflow.idle)
        if outcome.status is not RUNNING:  # that is decided now, perhaps long after its last turn
            instance.reach(max(instance.at, next_at(instance, parts.time.now())))
    if cleared and is_suspect(process):
        parts.telemetry.count("suspects_cleared")
    commit = transition.turn(
        process,
        instance.events,
        outcome,
        now=instance.at,
        lease=parts.lease,
        idle_at=idle_at,
        consumed=tuple(sorted(inbox.consumed.items())) if inbox.consumed else (),
        not_before=instance.not_before,
        cleared=cleared,
        starts=starts,
        sends=sends,
    )
    if shows:
        commit = published.told(commit, instance.process)
    if commit.consumed and inbox.brought is not None:
        commit = replace(commit, brings=inbox.brought.letter)
    if shown is not None and commit.after.progress is shown:
        commit = replace(commit, progress_kept=True)
    instance.handed_over(commit, cleared=cleared)
    return commit


def _progressed(instance: Instance, process: Process) -> Process:
    """The row with what it shows of open steps, if that must be written now: the next beat writes the rest.

    What a failed attempt has reported goes with its failure, since the next attempt may be another worker's. Where many
    steps are under way, to write all that they report with the end of each would cost the square of their number.
    """
    steps = instance.steps
    failed = steps.reported and any(event.type is EventType.ATTEMPT_FAILED for event in instance.events)
    if steps.in_flight and not failed:
        return process
    return replace(process, progress=steps.progress())


def next_run(parts: WorkerParts, instance: Instance, at: int | None) -> Commit:
    """The commit that opens the next run of a process whose code has ended, and all of it is written.

    It continues as new, or it has failed and is tried again ``at`` that time.
    """
    loop = instance.loop
    now = max(parts.time.now(), instance.at)
    if loop.renewal is not None:
        kept = None if loop.machine is None else loop.state
        late, letters, void = loop.late, left_over(loop), instance.inbox.void
        return renewed(instance.process, loop.renewal, late, letters, now=now, state=kept, void=void)
    assert loop.error is not None and at is not None
    failure = failed(instance, loop.error).on(parts.time.worker)
    parts.telemetry.count("workflow_retries")
    failure_log.workflow_failed(instance.process, failure, max(0, at - now) / SECOND)
    return tried_again(instance.process, instance.beginning, failure, at=at, now=now)


FARTHEST = microseconds(limits.FARTHEST_SECONDS)
"""A row whose timer is further away becomes due once before: no database and no calendar can hold every number."""


def outcome(instance: Instance, time: StoreTime, hold: int, written: bool = False) -> Outcome:
    """How the process stands now; one that goes on within ``hold`` microseconds stays in memory.

    If all is ``written``, what it waits for is not looked at once more unless it is let go.
    """
    loop = instance.loop
    outbox = instance.outbox
    if loop.finished and (outbox is None or not outbox.overfull):
        return _ending(instance, time)
    steps = instance.steps
    occupied = steps.in_flight or steps.asked or steps.releasing or instance.inputs
    if occupied or (outbox is not None and outbox.pending):
        return STILL_BUSY if loop.state is None else Outcome(busy=True, state=loop.state)
    timer = loop.next_timer()
    times = [waiting.at for waiting in steps.retries.values()]
    if timer is not None:
        times.append(timer[0])
    away = 0 if outbox is None else len(outbox.out)
    if len(loop.open) > len(steps.retries) + away and _left_to_run(instance):
        broken = compensation.broken(instance) or _retries_spent(instance)
        if broken is not None:
            return broken
        due_at = time.now() + (_without_reason(instance) if written else 0)
        return Outcome(Status.RUNNING, False, due_at, loop.awaiting(), loop.state)
    wake_at = min(times, default=None)
    if wake_at is not None:
        wake_at = min(wake_at, time.now() + FARTHEST)
    busy = (wake_at is not None and wake_at - time.now() <= hold) or until(instance) > time.now()
    if busy and loop.machine is not None and loop.machine.passive:
        busy = False
    # What it waits for is written even if it stays in memory, unless it is a timer: then no death counts against it.
    awaiting = None if busy and (written or wake_at is not None) else _awaiting(instance)
    return Outcome(Status.RUNNING, busy, wake_at, awaiting, loop.state)


def _awaiting(instance: Instance) -> str:
    """What the process waits for, for people: a few breakers first, since the rest may be cut."""
    if not instance.steps.retries:
        return instance.loop.awaiting()
    breakers = {one.breaker for one in instance.steps.retries.values() if one.breaker is not None}
    return ", ".join([*(BREAKER_MARK + name for name in sorted(breakers)[:3]), instance.loop.awaiting()])


def _left_to_run(instance: Instance) -> bool:
    """Whether a step is open that neither runs nor waits: the next worker runs it, unless nobody would hear of it."""
    loop, outbox = instance.loop, instance.outbox
    waits = {*instance.steps.retries, *(() if outbox is None else outbox.out.values())}
    return any(slot not in waits and not unheard(loop, ask) for slot, ask in loop.open.items())


def _without_reason(instance: Instance) -> int:
    """How long a process rests that leaves a step to the next worker, though nothing has happened that says why.

    That is a defect of ours. The next worker would come here again without an event: due at once, the process would be
    claimed in a circle without end, and keep workers and the database busy.
    """
    text = "process %s leaves a step to another worker for no reason, and rests for %g s; please report it"
    log.error(text, id_text(instance.process.id), limits.PUT_OFF_SECONDS)
    return microseconds(limits.PUT_OFF_SECONDS)


def _retries_spent(instance: Instance) -> Outcome | None:
    """The process as broken, if a step has come to the end of a retry policy that says so."""
    loop = instance.loop
    for (name, place), tried in instance.steps.attempts.items():
        if tried.breaks and (name, place) in loop.open:
            failure = tried.failure
            said = f"{failure.type}: {failure.message}" if failure.message else failure.type
            text = (
                f"step {name}:{place} was tried {tried.attempt} times, and its retry policy ends with a break: {said}"
            )
            error = replace(failure, type="RetriesSpent", message=safe_text(text, limits.ERROR_TEXT_BYTES))
            return Outcome(Status.BROKEN, state=loop.state, error=error.encode())
    return None


def _ending(instance: Instance, time: StoreTime) -> Outcome:
    """How the process stands once its code has ended; busy if its next run is to be opened, perhaps for ``wake_at``."""
    loop = instance.loop
    if loop.renewal is not None:
        return Outcome(busy=True, state=loop.state)  # this run is written to its end, then it opens the next one
    if loop.cancelled:
        return Outcome(Status.CANCELLED, state=loop.state, error=compensation.cancelled(loop))
    failure = loop.failure()
    if isinstance(failure, Broken):
        return Outcome(Status.BROKEN, state=loop.state, error=failure.failure.on(time.worker).encode())
    if failure is not None:
        retry = instance.workflow.retry
        if retry is not None and (at := _next_attempt(instance, retry, failure, time)) is not None:
            return Outcome(busy=True, wake_at=at, state=loop.state)
        return Outcome(Status.FAILED, state=loop.state, error=failed(instance, failure).on(time.worker).encode())
    try:
        result = loop.result_payload(instance.workflow.shape)
    except ValueError as error:
        told = compensation.compensated(loop, Failure.of(error)).on(time.worker)
        return Outcome(Status.FAILED, state=loop.state, error=told.encode())
    gone = Removal.PROCESS if loop.machine is not None and loop.machine.gone else None
    return Outcome(COMPLETED, state=loop.state, result=result, removes=gone)


def _next_attempt(instance: Instance, retry: Retry, error: BaseException, time: StoreTime) -> int | None:
    """When the workflow is tried again after this error, if it is; not if a person has asked it to end."""
    loop = instance.loop
    if loop.unwanted:
        return None
    now = max(time.now(), instance.at)
    return follows(retry, instance.process, instance.beginning, error, now, loop.chance.random())


def failed(instance: Instance, error: BaseException) -> Failure:
    """What is recorded of the error with which the code has ended."""
    failure = compensation.compensated(instance.loop, instance.workflow.failure(error))
    attempts = number_of(instance.beginning)
    return failure if attempts == 1 else replace(failure, attempts=attempts)


def until(instance: Instance) -> int:
    """The store's time until which a process stays in memory though it waits for nothing but children or messages."""
    outbox = instance.outbox
    if outbox is not None and outbox.out and outbox.patience > instance.inbox.patience:
        return outbox.patience
    return instance.inbox.patience


def rests(instance: Instance) -> bool:
    """Whether a process stays in memory only because an answer or a message may come soon."""
    outbox = instance.outbox
    waits = instance.inbox.patience > 0 or (outbox is not None and len(outbox.out) > 0)
    return waits and not (instance.steps.in_flight or instance.inputs)


def limited(instance: Instance, outcome: Outcome) -> Outcome:
    """The outcome, or a hold in its place; a person who lets the process go on grants it as many events again.

    A child's start and its answer do not count: a process has as many children as it needs.
    """
    family = 0 if instance.outbox is None else 2 * instance.outbox.started
    if instance.number < family + limits.HISTORY_WARN_EVENTS:
        return outcome
    bound = instance.resumed + family + limits.HISTORY_HOLD_EVENTS
    if instance.number >= bound:
        text = f"the history has {instance.number} events"
        failure = Failure(type="HistoryTooLong", message=text)
        return replace(outcome, status=Status.HELD, busy=False, wake_at=None, error=failure.encode())
    if instance.warn_once():
        log.warning(
            "process %s (%s) has a history of %d events and will be held at %d: every revival replays all of it. "
            "Have it continue as new with what it has reached",
            id_text(instance.process.id),
            instance.process.kind,
            instance.number,
            bound,
        )
    return outcome
