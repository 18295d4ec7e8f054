"""A turn becomes a commit: what the turns of a process have left behind, judged, and written as one record.

``drafted`` makes the commit. ``outcome`` says how the process stands, and until when it stays in memory though it only
waits for others: parents do for a moment, since children answer soon, and so do processes with a long history that have
just heard a message, for claiming one again means reading and replaying all of it, while the others of that worker
wait. ``limited`` tells people of a history that grows long, and holds the process at the limit. Patches, published
values and attributes go into the history, each once.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING

from msgspec import json
from msgspec.structs import replace

from perdure import limits
from perdure.authoring.task import QueueWork
from perdure.clock import microseconds
from perdure.errors import DefinitionError, PayloadTooLarge
from perdure.kernel import transition
from perdure.kernel.command import sooner
from perdure.kernel.commit import STILL_BUSY, Commit, Outcome, Start
from perdure.kernel.event import SHOWN, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import Message
from perdure.kernel.names import id_text
from perdure.kernel.patch import TakenPatch
from perdure.kernel.process import COMPLETED, FINAL, Status, merged, missing
from perdure.kernel.quarantine import is_suspect
from perdure.logs import logger
from perdure.runtime import compensation
from perdure.runtime.store_time import StoreTime
from perdure.turns.publication import publications_of

if TYPE_CHECKING:
    from perdure.kernel.event import Event
    from perdure.kernel.process import Process
    from perdure.runtime.instance import Instance
    from perdure.runtime.scheduler import Scheduler
    from perdure.runtime.steps.attempt_run import AttemptRun


def drafted(scheduler: Scheduler, instance: Instance, outcome: Outcome, *, inward: bool = False) -> Commit:
    """The commit that leaves this outcome; ``inward`` leaves out what goes to others."""
    cleared = instance.inherited is not None and not instance.inherited
    process = instance.process
    if process.progress is not None or instance.reported:
        process = replace(process, progress=instance.progress())
    if instance.until is not None:
        process = replace(process, deadline=sooner(process.deadline, instance.until))
    shows = instance.loop.publications is not None
    if shows:
        process = shown(instance, process)
    starts: tuple[Start, ...] = ()
    sends: tuple[Message, ...] = ()
    if instance.outbox is not None and not inward:
        starts, sends = instance.outbox.dispatch(instance, scheduler.machine)
    idle_at = 0 if outcome.busy or outcome.status in FINAL else scheduler.time.idle_at(instance.workflow.idle)
    if cleared and is_suspect(process):
        scheduler.telemetry.count("suspects_cleared")
    commit = transition.turn(
        process,
        instance.events,
        outcome,
        now=instance.at,
        lease=scheduler.lease,
        idle_at=idle_at,
        consumed=tuple(sorted(instance.consumed.items())) if instance.consumed else (),
        not_before=instance.not_before,
        cleared=cleared,
        starts=starts,
        sends=sends,
    )
    if shows:
        commit = told(commit, instance.process)
    instance.handed_over(commit, cleared=cleared)
    return commit


FARTHEST = microseconds(limits.FARTHEST_SECONDS)
"""A row whose timer is further away is looked at once before: no database and no calendar can hold every number."""


def outcome(instance: Instance, time: StoreTime, hold: int) -> Outcome:
    """What is left behind; a process that goes on within ``hold`` microseconds stays in hand."""
    loop = instance.loop
    outbox = instance.outbox
    if loop.finished and (outbox is None or not outbox.overfull):
        return _ending(instance)
    occupied = instance.in_flight or instance.asked or instance.releasing or instance.inputs
    if occupied or (outbox is not None and outbox.pending):
        return STILL_BUSY if loop.state is None else Outcome(busy=True, state=loop.state)
    timer = loop.next_timer()
    times = [instance.attempts[slot].retry_at for slot in instance.retries]
    if timer is not None:
        times.append(timer[0])
    away = 0 if outbox is None else len(outbox.out)
    if len(loop.open) > len(instance.retries) + away:  # a step is open and nobody runs it: whoever comes next will
        broken = compensation.broken(instance)
        return broken or Outcome(Status.RUNNING, False, time.now(), loop.awaiting(), loop.state)
    wake_at = min(times, default=None)
    if wake_at is not None:
        wake_at = min(wake_at, time.now() + FARTHEST)
    busy = (wake_at is not None and wake_at - time.now() <= hold) or until(instance) > time.now()
    # What it waits for is said also where it stays in hand, unless it is a timer: then no death counts against it.
    awaiting = None if busy and wake_at is not None else loop.awaiting()
    return Outcome(Status.RUNNING, busy, wake_at, awaiting, loop.state)


def _ending(instance: Instance) -> Outcome:
    loop = instance.loop
    if loop.renewal is not None:
        return STILL_BUSY  # what this run has come to is written, then it opens the next one
    if loop.cancelled:
        return Outcome(Status.CANCELLED, state=loop.state, error=compensation.cancelled(loop))
    failure = loop.failure()
    if failure is not None:
        error = compensation.compensated(loop, instance.workflow.failure(failure))
        return Outcome(Status.FAILED, state=loop.state, error=error.encode())
    try:
        result = loop.result_payload(instance.workflow.shape)
    except ValueError as error:
        told = compensation.compensated(loop, Failure.of(error))
        return Outcome(Status.FAILED, state=loop.state, error=told.encode())
    return Outcome(COMPLETED, state=loop.state, result=result)


def heard(instance: Instance) -> None:
    """Its code has received a message in this turn."""
    if instance.number >= limits.LONG_HISTORY_EVENTS:
        instance.patience = instance.at + microseconds(limits.LONG_HISTORY_HOLD_SECONDS)


def until(instance: Instance) -> int:
    """The store's time until which it stays in hand though it waits for nothing but children or messages."""
    outbox = instance.outbox
    if outbox is not None and outbox.out and outbox.patience > instance.patience:
        return outbox.patience
    return instance.patience


def rests(instance: Instance) -> bool:
    """Whether a process is in hand for no other reason than what may come soon."""
    outbox = instance.outbox
    waits = instance.patience > 0 or (outbox is not None and len(outbox.out) > 0)
    return waits and not (instance.in_flight or instance.inputs)


log = logger("process")


def limited(instance: Instance, outcome: Outcome) -> Outcome:
    """The outcome, or a hold in its place; a person who lets the process go on grants it as many events again.

    A child's start and its answer do not count: a process has as many children as it needs.
    """
    if instance.number < limits.HISTORY_WARN_EVENTS:
        return outcome
    family = 0 if instance.outbox is None else 2 * instance.outbox.started
    if instance.number < family + limits.HISTORY_WARN_EVENTS:
        return outcome
    bound = instance.resumed + family + limits.HISTORY_HOLD_EVENTS
    if instance.number >= bound:
        text = f"the history has {instance.number} events"
        failure = Failure(type="HistoryTooLong", message=text)
        return replace(outcome, status=Status.HELD, busy=False, wake_at=None, error=failure.encode())
    if not instance.warned:
        instance.warned = True
        log.warning(
            "process %s (%s) has a history of %d events and will be held at %d: every revival replays all of it. "
            "Have it continue as new with what it has come to",
            id_text(instance.process.id),
            instance.process.kind,
            instance.number,
            bound,
        )
    return outcome


def note_taken(instance: Instance) -> None:
    """Write down the patches just taken, before anything that follows from them is released."""
    patches = instance.loop.patches
    if patches is None:
        return
    for name in patches.fresh:
        instance.note(EventType.PATCHED, instance.at, TakenPatch(instance.turns).encode(), name=name)
    patches.fresh.clear()


def recall(instance: Instance, event: Event) -> None:
    """A replay has come by a published value or an answer: the code will show it again; it is written already."""
    publications_of(instance.loop).recorded.add((event.name, event.place))


def note(instance: Instance) -> None:
    """Write down what the code has just shown, but for what the history holds already."""
    publications = instance.loop.publications
    if publications is None:
        return
    for one in publications.fresh:
        if (one.name, one.place) not in publications.recorded:
            instance.note(one.type, instance.at, one.payload, name=one.name, place=one.place, digest=one.digest)
    publications.fresh.clear()
    publications.recorded.clear()
    if publications.untold:
        known = merged(instance.process.attributes, publications.told)
        news = missing(known, publications.untold)
        if news:
            merged(known, news)  # too many for the row: a person must see it before anything is written
            instance.note(EventType.ATTRIBUTES_SET, instance.at, json.encode(news))
        publications.told |= publications.untold
        publications.untold = {}


def shown(instance: Instance, process: Process) -> Process:
    """The row with the attributes that the code has set; raises PayloadTooLarge if they are too many by now."""
    publications = instance.loop.publications
    if publications is None or not publications.attributes:
        return process
    if not missing(process.attributes, publications.attributes):
        return process
    return replace(process, attributes=merged(process.attributes, publications.attributes))


def told(commit: Commit, before: Process) -> Commit:
    """The commit, marked with what of it others wait for."""
    published = any(event.type in SHOWN for event in commit.events)
    return replace(commit, attributes_set=commit.after.attributes != before.attributes, published=published)


def show(attempt_run: AttemptRun, name: str, raw: bytes) -> None:
    """An attempt publishes a value, from whichever thread; raises DefinitionError if nobody could read it."""
    if isinstance(attempt_run.instance.workflow, QueueWork):
        raise DefinitionError(
            "a queued step is a process of its own, whose values nobody would look for. Return the value, and publish "
            "it in the workflow."
        )
    if len(attempt_run.instance.events) >= limits.PUBLISHED_RECORDS:
        raise PayloadTooLarge(
            f"{limits.PUBLISHED_RECORDS:,} values wait to be written. Put several into one, or let the step await "
            "something now and then."
        )
    agent = attempt_run.agent
    if get_ident() == agent.thread:
        agent.shown(attempt_run, name, raw)
    else:
        agent.loop.call_soon_threadsafe(agent.shown, attempt_run, name, raw)


def by_step(settle: Callable[[Instance], None], attempt_run: AttemptRun, name: str, raw: bytes) -> None:
    """Note a value that an attempt has published, and see to it that it is written, when the step lets us."""
    instance, ask, agent = attempt_run.instance, attempt_run.ask, attempt_run.agent
    if attempt_run.over or instance.gone:
        return
    publications_of(instance.loop)
    now = max(agent.time.now(), instance.at)
    instance.note(EventType.PUBLISHED, now, raw, name=name, place=f"{ask.name}:{ask.place}")
    agent.loop.call_soon(settle, instance)
