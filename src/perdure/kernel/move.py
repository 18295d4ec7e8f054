"""A move: a process before and after one transaction, and the laws about going from one to the other.

The laws have the names of :mod:`perdure.kernel.soundness`, which looks at one state; these look at two in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from perdure.kernel.event import HAPPENED, Event, EventType
from perdure.kernel.names import is_debounced
from perdure.kernel.process import FINAL, MOVES, Process, Status
from perdure.kernel.queue import Queue
from perdure.kernel.soundness import Finding


class Move(Struct, frozen=True):
    """The row before one transaction and after it, and the events that the transaction has appended."""

    before: Process
    after: Process
    fresh: tuple[Event, ...]
    now: int


def unsound_move(before: Process | None, after: Process, fresh: Sequence[Event], now: int) -> list[Finding]:
    """Every law that one transaction breaks by what it made of a process; ``now`` is the store's time in it.

    ``before`` is None if the transaction has stored the process: then it has not moved.
    """
    if before is None:
        return []
    move = Move(before, after, tuple(fresh), now)
    return [Finding(law.__name__, after.id, text) for law in LAWS for text in law(move)]


def one_owner(move: Move) -> Iterator[str]:
    """Law 2: tokens never fall, every new owner of a row gets a new one, and only the latest token has written."""
    before, after = move.before, move.after
    if after.token < before.token:
        yield f"its token fell from {before.token} to {after.token}"
    if after.owner is not None and after.owner != before.owner and after.token == before.token:
        yield f"it has a new owner under the old token {after.token}"
    if after.run != before.run:
        return
    for event in move.fresh:
        if event.token < before.token:
            yield f"event {event.number} was written with token {event.token}, when the row had {before.token}"


def one_transaction(move: Move) -> Iterator[str]:
    """Law 3: one transaction writes one commit, with all its events, and none without it."""
    before, after = move.before, move.after
    if not before.version <= after.version <= before.version + 1:
        yield f"its version went from {before.version} to {after.version} in one transaction"
    if move.fresh and after.version == before.version:
        yield f"{len(move.fresh)} events were appended without a commit"
    if after.version == before.version and (after.status, after.run) != (before.status, before.run):
        yield f"it went from {before.status} to {after.status} without a commit"
    if (after.kind, after.created_at, after.parent) != (before.kind, before.created_at, before.parent):
        yield "its kind, parent or time of creation has changed"
    if after.key != before.key and not _key_released(move):
        yield f"its key was {before.key!r} and is {after.key!r}, and no person has released it"


def history_is_gapless(move: Move) -> Iterator[str]:
    """Law 4: within a run events are only ever added; a run is followed by the next one."""
    before, after = move.before, move.after
    if not before.run <= after.run <= before.run + 1:
        yield f"it went from run {before.run} to run {after.run}"
    if after.run == before.run and after.events != before.events + len(move.fresh):
        yield f"it had {before.events} events, {len(move.fresh)} were appended, and it counts {after.events}"


def accepted_is_kept(move: Move) -> Iterator[str]:
    """Law 8: the count of messages sent never falls, nor, within a run, the number of the last one seen."""
    before, after = move.before, move.after
    if after.inbox < before.inbox:
        yield f"its inbox fell from {before.inbox} to {after.inbox}"
    if after.run == before.run and after.seen < before.seen:
        yield f"it had seen message {before.seen}, now only {after.seen}"


def finished_is_final(move: Move) -> Iterator[str]:
    """Law 10: an ended process is left only into the next run, and every change of status is a legal move."""
    before, after = move.before, move.after
    if before.run != after.run:
        stays_held = before.status is after.status is Status.HELD  # a step that had failed got its result by hand
        if after.status is not Status.RUNNING and not stays_held:
            yield f"its run {after.run} begins as {after.status}"
        return
    unchanged = (after.events, after.version) == (before.events, before.version)
    unchanged = unchanged or _key_released(move) or _version_moved(move)
    if before.status in FINAL and not (
        unchanged and (after.status, after.result, after.error) == (before.status, before.result, before.error)
    ):
        yield f"it had ended as {before.status} and was changed without a new run"
    if after.status is not before.status and after.status not in MOVES[before.status]:
        yield f"it went from {before.status} to {after.status}"


def _key_released(move: Move) -> bool:
    """Whether the key of an ended or debounced process was given back, and its code has done nothing meanwhile."""
    before, after = move.before, move.after
    types = [event.type for event in move.fresh]
    if before.key is None or after.key is not None or types[-1:] != [EventType.KEY_RELEASED]:
        return False
    return types[:-1] == [] if before.final else is_debounced(before.key) and HAPPENED.issuperset(types[:-1])


def _version_moved(move: Move) -> bool:
    """Whether a failed process was moved to another version of its code, and nothing else has happened to it."""
    return move.before.status is Status.FAILED and [event.type for event in move.fresh] == [EventType.VERSION_MOVED]


def over_limit(queue: Queue, running: Sequence[Process], now: int, *, lapsed: bool = False) -> Iterator[str]:
    """What breaks a queue's limits after a transaction in which a task of it was taken.

    ``running`` are its tasks that have an owner. Nothing is taken above a limit that was lowered meanwhile. But a
    takeover of ``lapsed`` tasks alone breaks no limit: they kept their places, and may be charged before their time.
    """
    if queue.blocked_at is not None:
        yield "a task was taken although the queue is blocked"
    if lapsed:
        return
    sums: dict[str | None, int] = {}
    for task in running:
        sums[task.share] = sums.get(task.share, 0) + queue.weight(task.cost)
    if queue.concurrency is not None and sum(sums.values()) > queue.concurrency:
        yield f"{sum(sums.values())} run at once, {queue.concurrency} may"
    for share, weight in sums.items():
        if queue.share_concurrency is not None and weight > queue.share_concurrency:
            yield f"{weight} of share {share!r} run at once, {queue.share_concurrency} may"
    if queue.rate is not None and queue.next_at > now + queue.per:
        yield f"more has begun than {queue.rate} in {queue.per} microseconds"


MoveLaw = Callable[[Move], Iterator[str]]

LAWS: tuple[MoveLaw, ...] = (one_owner, one_transaction, history_is_gapless, accepted_is_kept, finished_is_final)
