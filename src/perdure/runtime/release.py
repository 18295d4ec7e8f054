"""A process leaves this worker without a turn: it is parked as broken, out of time, ended by its parent, or unreadable.

A process over its deadline is let go, and a sweep ends it as failed: nothing of it counts any more, except for a task
with ``total_force=False``, whose running attempt may still end. A parent's order that its child ends with it is carried
out without the child's code. A process with a record that cannot be opened, is missing or unknown here is parked with
the reason, put off while what it needs cannot be reached, or left to a newer worker, see
:mod:`perdure.runtime.handover`.

A lapsed lease may be claimed before any sweep has seen that its owner died: that is a death too. Else no death would
count where the next worker comes only after the lease, and a single worker, started again a little later each time,
would never be rid of a process that kills it (rule 13).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure import limits
from perdure.authoring.task import may_end_late
from perdure.clock import SECOND, microseconds
from perdure.errors import (
    BadRecord,
    DamagedRecord,
    HistoryMisfit,
    NewerRecord,
    PerdureError,
    StoreError,
    StoreUnavailable,
)
from perdure.futures import asked
from perdure.kernel import debounce, quarantine, transition
from perdure.kernel.claim import Claimed
from perdure.kernel.commit import Commit, CommitAnswer, Verdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.integrity import lost, strange
from perdure.kernel.message import Message, MessageType
from perdure.kernel.names import id_text, is_debounced
from perdure.kernel.notice import notices
from perdure.kernel.run import opening_of
from perdure.kernel.stored import first_trouble
from perdure.kernel.transition import Rescuer, Sender
from perdure.kernel.worker import Hang
from perdure.logs import logger
from perdure.runtime import farewell, missing
from perdure.runtime.handover import Handover, took_what_is_unknown
from perdure.runtime.instance import happened, next_at
from perdure.runtime.quarantine import report

if TYPE_CHECKING:
    from perdure.kernel.worker import WorkerRow
    from perdure.runtime.committer import Committer
    from perdure.runtime.holder import Holder
    from perdure.runtime.instance import Instance

log = logger("process")


def park(scheduler: Holder, instance: Instance, error: BaseException) -> None:
    """Park a process that has no commit in flight: what its code did since its last one is void."""
    scheduler.drop(instance)
    time = scheduler.parts.time
    failure = Failure.of(error).on(scheduler.parts.machine.name())
    now = next_at(instance, time.now())
    commit = transition.broken(instance.process, failure, now=now, idle_at=time.idle_at())
    _park(scheduler, _with_fallbacks(commit, instance), error)


def handed_back(instance: Instance, due_at: int) -> Commit:
    """The commit that frees a process in the middle of its work, with what has happened to it meanwhile.

    If its history begins with that, the reply address is told that it was received: nobody tells it later.
    """
    commit = transition.preceded(transition.released(instance.process, due_at=due_at), happened(instance))
    return replace(commit, sends=notices(instance.process, commit.after)) if commit.events else commit


def unwritten(scheduler: Holder, instance: Instance, commit: Commit, error: StoreError) -> None:
    """Let a process go whose commit was not written; park it if the database refused what it would write."""
    if instance.gone:
        if isinstance(error, BadRecord) and commit.events and commit is not instance.commit:
            # If we die here, or this is not written either, its lease lapses.
            scheduler.parts.committer.commit(transition.unrecorded(commit), partial(_freed_at_last, instance))
        return
    instance.unwritten()
    log.error("process %s: its commit was not written: %s", id_text(instance.process.id), error)
    if isinstance(error, BadRecord):
        scheduler.park(instance, error)
    else:
        scheduler.drop(instance)


def _freed_at_last(instance: Instance, answer: CommitAnswer | StoreError) -> None:
    if isinstance(answer, StoreError):
        log.error("process %s could not be handed back: %s", id_text(instance.process.id), answer)


def _with_fallbacks(commit: Commit, instance: Instance) -> list[Commit]:
    """The commit by which a process is let go, with what has happened to it, and what is written if that is refused.

    To a history with more events than its row counts nothing can be appended.
    """
    full = transition.preceded(commit, happened(instance))
    return [full, transition.unrecorded(commit)] if full is commit else [full, commit, transition.unrecorded(commit)]


def _park(scheduler: Holder, commits: Sequence[Commit], error: BaseException) -> None:
    scheduler.parts.committer.commit(commits[0], partial(_parked, scheduler, commits, error))


def _parked(scheduler: Holder, commits: Sequence[Commit], error: BaseException, answer: Any) -> None:
    """Act on the answer to a parking commit. If it was refused, another worker has the process: nothing to report."""
    process = commits[0].after
    if isinstance(answer, CommitAnswer) and answer.verdict is Verdict.APPLIED:
        scheduler.parts.telemetry.counters["broken"] += 1
        scheduler.events.ended(process, scheduler.parts.committer.sent)
        scheduler.parts.alerts.ended(process)
    elif isinstance(answer, BadRecord) and len(commits) > 1:
        _park(scheduler, commits[1:], error)
    elif isinstance(answer, StoreError):  # its lease lapses, and the worker that takes it over parks it
        log.error("process %s could not be parked as broken: %s", id_text(process.id), answer)


def passed(instance: Instance, now: int) -> bool:
    """Whether the deadline of a process has passed."""
    deadline = instance.process.deadline
    return deadline is not None and deadline <= now


def spared(instance: Instance) -> bool:
    """Whether a process may go on past its deadline: its running attempt may end, and it was not asked to end then."""
    return bool(instance.steps.in_flight) and instance.inbox.until is None and may_end_late(instance.process)


def lapsed(scheduler: Holder, instance: Instance) -> bool:
    """Drop a process if the answer that makes it ours came after the end of its lease: no worker acts on such a lease.

    In the store the lease may still last: the store carried the request out long after it was sent.
    """
    if instance.lease_end > scheduler.parts.time.monotonic():
        return False
    scheduler.parts.telemetry.count("leases_lost")
    scheduler.drop(instance)
    scheduler.events.strayed()
    return True


def too_late(scheduler: Holder, instance: Instance) -> bool:
    """Let go at once of a process that was claimed after its deadline, or too slowly: its code is not run any more."""
    if lapsed(scheduler, instance):
        return True
    if instance.process.deadline is None or not passed(instance, scheduler.parts.time.now()):
        return False
    if instance.process.inbox > instance.process.seen:  # if handed back, it would be due now: claimed again, for ever
        scheduler.drop(instance)
    else:
        scheduler.release(instance, SECOND)  # the sweep that ends it comes sooner
    return True


def let_go(scheduler: Holder) -> None:
    """Let go of all processes over their deadlines: at work or not, nothing of them counts any more."""
    now = scheduler.parts.time.now()
    for instance in [one for one in scheduler.instances.values() if passed(one, now) and not spared(one)]:
        if may_end_late(instance.process):
            scheduler.release(instance)  # a sweep would wait for the end of its lease
        else:
            scheduler.drop(instance)


def ordered(messages: Sequence[Message], since: int) -> Message | None:
    """The order to terminate among the messages with higher numbers than ``since``, if there is one."""
    for message in messages:
        if message.type is MessageType.TERMINATE and message.number > since:
            return message
    return None


def to_end(claimed: Claimed) -> bool:
    """Whether a claimed process may have been ordered to end; its history tells whether that was meant for this run."""
    return ordered(claimed.messages, claimed.process.seen) is not None


def carried_out(scheduler: Holder, instance: Instance, claimed: Claimed) -> bool:
    """Whether a claimed process was ordered to end: then it is ended before its code runs, and its children are told.

    An order that was meant for an earlier run does not count.
    """
    order = ordered(claimed.messages, max(claimed.process.seen, opening_of(claimed.events).void))
    if order is None:
        return False
    now = next_at(instance, scheduler.parts.time.now())
    commit = transition.terminated(claimed.process, Sender.read(order.sender), claimed.events, now=now)
    commit = transition.preceded(commit, happened(instance))
    farewell.take_leave(scheduler, instance, commit, partial(_end, scheduler))
    return True


def _end(scheduler: Holder, commit: Commit) -> None:
    """Write the end of a process that was let go; if its history takes no event, only its row tells of it."""

    def answered(answer: CommitAnswer | StoreError) -> None:
        # If we die here it is ended, or its lease lapses and the worker that takes it next finds the order again.
        if isinstance(answer, BadRecord) and commit.events:
            _end(scheduler, transition.unrecorded(commit))
        elif isinstance(answer, StoreError):
            log.error("process %s could not be ended with its parent: %s", id_text(commit.after.id), answer)
        elif answer.verdict is Verdict.APPLIED:
            scheduler.parts.telemetry.counters["cancelled"] += 1
            scheduler.events.ended(commit.after, scheduler.parts.committer.sent)
            scheduler.events.posted(commit)

    scheduler.parts.committer.commit(commit, answered)


def begun(scheduler: Holder, instance: Instance) -> bool:
    """Whether a claimed process of a debounced start begins with this: it gives its key back before its code runs."""
    process = instance.process
    if not is_debounced(process.key):
        return False
    commit = debounce.begun(process, now=next_at(instance, scheduler.parts.time.now()))
    commit = transition.preceded(commit, happened(instance))
    scheduler.drop(instance)

    def answered(answer: CommitAnswer | StoreError) -> None:
        # If we die here it has begun and is due, or its lease lapses and the worker that claims it next begins it.
        if isinstance(answer, BadRecord):
            park(scheduler, instance, answer)  # else it would be claimed again, and be refused again, for ever
        elif isinstance(answer, StoreError):
            log.error("process %s could not begin: %s", id_text(process.id), answer)
        elif answer.verdict is Verdict.APPLIED:
            scheduler.events.due(scheduler.parts.time.now())
            scheduler.events.posted(commit)

    scheduler.parts.committer.commit(commit, answered)
    return True


class Unreadable:
    """Lets go of the processes that a scheduler has claimed and cannot replay."""

    def __init__(self, scheduler: Holder) -> None:
        self._scheduler = scheduler
        self.handover = Handover(scheduler)

    def let_go(self, instance: Instance, trouble: PerdureError, history: Sequence[Event] | None = None) -> None:
        """Let a process go that has something unreadable; with its ``history`` it may begin again by itself."""
        if isinstance(trouble, StoreUnavailable):
            log.warning("a process is put off for %g s: %s", limits.PUT_OFF_SECONDS, trouble)
            self._put_off(instance, limits.PUT_OFF_SECONDS)
        elif isinstance(trouble, NewerRecord) and self.handover.schema_ahead:
            self._hand_over(instance, trouble)
        elif history is None or not self._begun_again(instance, history, trouble):
            self._scheduler.park(instance, trouble)

    def among(self, instance: Instance, messages: Sequence[Message], counted: int) -> bool:
        """Let a process go if what was read for it cannot be delivered; ``counted`` are the messages it waited for."""
        trouble = first_trouble(message.payload for message in messages) or strange(instance.process, messages)
        if trouble is None and not messages and counted > instance.inbox.heard:
            trouble = lost(instance.process, instance.inbox.heard, counted)
        if trouble is not None:
            self.let_go(instance, trouble)
        return trouble is not None

    def hear(self, instance: Instance, messages: Sequence[Message]) -> bool:
        """Put messages into the next turn of a process, or let it go if one of them is missing."""
        try:
            self._scheduler.parts.telemetry.counters["messages"] += instance.hear(messages)
        except DamagedRecord as error:
            self.let_go(instance, error)
            return False
        return True

    def misfit(self, instance: Instance, history: Sequence[Event], error: Exception) -> None:
        """Let a process go whose history could not be replayed: perhaps our code is the old one of a deployment."""
        if isinstance(error, HistoryMisfit) and took_what_is_unknown(instance, history):
            self._hand_over(instance, error)
        elif not self._begun_again(instance, history, error):
            self._scheduler.park(instance, error)

    def _begun_again(self, instance: Instance, history: Sequence[Event], error: Exception) -> bool:
        otherwise = partial(park, self._scheduler, instance, error)
        return missing.restarted(self._scheduler, instance, history, error, otherwise)

    def _hand_over(self, instance: Instance, trouble: PerdureError) -> None:
        seconds = self.handover.wait(instance.process)
        if seconds is None:
            self._scheduler.park(instance, trouble)
            return
        self._scheduler.parts.telemetry.count("processes_handed_over")
        id = id_text(instance.process.id)
        log.warning("process %s is left to a newer worker for %g s: %s", id, seconds, trouble)
        process = instance.process
        if self.handover.lets_by((process.kind, process.code)):  # with messages unheard it is due now, for others
            self._scheduler.release(instance, microseconds(seconds))
        else:
            self._put_off(instance, seconds)

    def _put_off(self, instance: Instance, seconds: float) -> None:
        process = instance.process
        if process.inbox > process.seen:  # if handed back, it would be due now: claimed again, for ever
            self._scheduler.drop(instance)  # its lease ends, and the worker that claims it then decides again
        else:
            self._scheduler.release(instance, microseconds(seconds))


async def written(committer: Committer, commit: Commit) -> tuple[Commit, CommitAnswer]:
    """Write what frees or ends a process; what was written, and its answer.

    If the database refuses it since the history has more events than its row counts, it is written without its event.
    The opening of a run is not: what the run begins with stands in no other place.
    """
    try:
        return commit, await asked(committer.commit, commit)
    except BadRecord:
        if not commit.events or commit.events[0].type is EventType.RUN_OPENED:
            raise
        bare = transition.unrecorded(commit)
        return bare, await asked(committer.commit, bare)


async def without_the_dead(scheduler: Holder, claimed: Sequence[Claimed]) -> Sequence[Claimed]:
    """Free the processes claimed from workers that died, count each death, and return those that may go on at once.

    The one process that has hung its worker is freed too, whether that worker lives or not.
    """
    if not any(one.was_owned_by for one in claimed):
        return claimed
    workers = await _owners(scheduler, {one.was_owned_by for one in claimed if one.was_owned_by})
    guilty = {
        one.process.id: worker
        for one in claimed
        if one.was_owned_by in workers and (died(worker := workers[one.was_owned_by]) or _hung(one, worker))
    }
    # If we die here the rows are ours, and our death is seen or their lease lapses as it has before.
    before = [replace(one.process, owner=one.was_owned_by) for one in claimed if one.process.id in guilty]
    held = quarantine.held_by(before)
    commits = [
        _freed(scheduler, one, guilty[one.process.id], held[one.was_owned_by or b""])
        for one in claimed
        if one.process.id in guilty
    ]
    await asyncio.gather(*(written(scheduler.parts.committer, commit) for commit in commits))
    scheduler.parts.telemetry.revived(commit.after.kind for commit in commits)
    report(before, commits, scheduler.parts.alerts)
    return [one for one in claimed if one.process.id not in guilty]


async def _owners(scheduler: Holder, owners: Collection[bytes]) -> dict[bytes, WorkerRow]:
    """These workers as they are now, or after the grace if their locks are free that may be taken again."""
    store, grace = scheduler.parts.store, scheduler.parts.grace()
    since = store.backend.standing_since
    workers = {worker.id: worker for worker in await store.workers(ids=owners)}
    doubtful = [one for one in workers.values() if not one.died and died(one)]
    if not grace or not doubtful:
        return workers
    # If we die here the rows are ours, and our death is seen or their lease lapses as it has before.
    await asyncio.sleep(grace)
    workers = {worker.id: worker for worker in await store.workers(ids=owners)}
    lost = store.backend.standing_since in (None, math.inf) or store.backend.standing_since != since
    for before in doubtful:
        now = workers.get(before.id)
        if now is not None and (now.beats != before.beats or lost):
            workers[now.id] = replace(now, lock_free=False)  # it lives, or its lock tells nothing yet
    return workers


def _hung(claimed: Claimed, worker: WorkerRow) -> bool:
    hang = Hang.read(worker.hang)
    return hang is not None and hang.process == claimed.process.id


def died(worker: WorkerRow) -> bool:
    """Whether there is evidence that a worker whose leases lapse has died: it was found dead, or its lock is free."""
    return worker.died or (worker.ended_at is None and worker.locked and worker.lock_free)


def _freed(scheduler: Holder, claimed: Claimed, worker: WorkerRow, held: int) -> Commit:
    name, time = f"{worker.name} {id_text(worker.id)}", scheduler.parts.time
    now, idle_at, hang = time.now(), time.idle_at(), Hang.read(worker.hang)
    by = Rescuer(scheduler.parts.machine.name(), "claim")
    return transition.orphaned(
        claimed.process, now=now, died=True, worker=name, idle_at=idle_at, held=held, hang=hang, by=by
    )
