"""Upkeep on SQLite: workers with their beats, rows that are overdue, and rows to be pruned (rules 11, 12, 24)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from perdure.kernel.note import RETENTION, RULES_COUNT
from perdure.kernel.worker import Beat, BeatAnswer, WorkerRow
from perdure.limits import BATCH_BYTES, PRUNED_EVENTS
from perdure.store.base import FoundRows, Pruned, Search
from perdure.store.migrate import ahead, outgrown
from perdure.store.sqlite import row
from perdure.store.sqlite.clock import SqliteClock
from perdure.store.sqlite.connection import NOTHING, Connection
from perdure.store.sqlite.incarnation_lock import IncarnationLocks
from perdure.store.sqlite.start import input_digest
from perdure.store.sqlite.text import listed
from perdure.store.sqlite.writer import Transaction

PRUNED_AT_ONCE = 100
EVENTS_PRUNED_AT_ONCE = PRUNED_EVENTS
"""The most processes, and events, that one transaction prunes, so that it stays short; one run may have more."""

_FIRST = (-(1 << 63), b"")
"""Before the first row: no time and no id is smaller."""

WORKER_KEPT = 24 * 3600 * 1_000_000
"""Microseconds for which an ended worker stays listed."""


class Finished(Struct):
    """Processes that one transaction prunes. If ``former`` is the id and version of one, its former runs go before."""

    ids: list[bytes]
    former: tuple[bytes, int] | None = None


def overdue(connection: Connection, search: Search, now: int) -> FoundRows:
    """The rows that a sweep must look at, the longest overdue first; or those that had ended by a time.

    They are found without what they hold, and as many are read as one answer holds.
    """
    with connection.one_moment():
        found = _overdue(connection, search, now)
        total = 0
        taken = set[bytes]()
        for id, size, _ in sorted(found, key=itemgetter(2)):
            total += size
            if taken and total > BATCH_BYTES:
                break
            taken.add(id)
        cells = [cell for place, (id, *_) in enumerate(found) if id in taken for cell in (place, id)]
        packed = connection.ask("read_processes", 2, cells) if cells else []
    page = FoundRows([one for part in packed for one in row.processes(part)])
    page.left = len(found) - len(taken)
    return page


def _overdue(connection: Connection, search: Search, now: int) -> list[tuple[bytes, int, int]]:
    """The ids of a page, how many bytes their rows hold, and in which order these go into an answer."""
    since, behind = search.after or _FIRST
    kind, code = search.after_pair or ("", "")
    given = {"most": search.limit, "since": since, "behind": behind}
    if search.ended_to is not None:
        (found,) = connection.one("find_ended", before=search.ended_to, **given)
    else:
        given |= {"now": now, "owner": search.owner, "kind": kind, "code": code}
        (found,) = connection.one(f"overdue_{search.overdue}", **given)
    rows = json.decode(found)
    return [(bytes.fromhex(id), size, turn[0] if turn else place) for place, (id, size, *turn) in enumerate(rows)]


def finished(connection: Connection, before: int, limit: int, now: int) -> list[Finished]:
    """Processes that finished by a time, the longest finished first, in groups for one transaction each.

    There is none while workers remove processes by rules.
    """
    since, many = now - RULES_COUNT, EVENTS_PRUNED_AT_ONCE + 1
    (found,) = connection.one("find_finished", before=before, most=limit, name=RETENTION, since=since, many=many)
    groups: list[Finished] = []
    events = 0
    for hex_id, version, count, reopened in json.decode(found):
        id = bytes.fromhex(hex_id)
        events += count
        if not groups or len(groups[-1].ids) == PRUNED_AT_ONCE or events > EVENTS_PRUNED_AT_ONCE:
            groups.append(Finished([]))
            events = count
        groups[-1].ids.append(id)
        if reopened and count > EVENTS_PRUNED_AT_ONCE:
            groups[-1].former = (id, version)
    return groups


def prune(transaction: Transaction, ids: Sequence[bytes], before: int, keys: int) -> int:
    """Remove those of the processes that are still finished, with all that is theirs; keep their keys for a while."""
    return _prune(transaction, transaction.connection.ask("read_finished", 1, list(ids), before), keys)


def prune_only(transaction: Transaction, only: Sequence[tuple[bytes, int]], keys: int) -> int:
    """Remove those of the processes that have ended and are still at their version; keep their keys for a while."""
    cells = [cell for one in only for cell in one]
    return _prune(transaction, transaction.connection.ask("read_ended_at", 2, cells), keys)


def _prune(transaction: Transaction, found: Sequence[tuple[Any, ...]], keys: int) -> int:
    """Remove processes of which the heads and the inputs were found."""
    connection, until = transaction.connection, transaction.now + keys
    gone: list[Any] = []
    kept: list[Any] = []
    for heads, inputs in found:
        at = 0
        for id, kind, key, length in listed(heads):
            input, at = (inputs or b"")[at : at + length], at + length
            gone.append(bytes.fromhex(id))
            if key is not None:
                kept += (kind, key, gone[-1], input_digest(input), until)
    if not gone:
        return 0
    if kept:
        connection.write("keep_keys", 5, kept)
    return remove(connection, gone)


def remove(connection: Connection, ids: list[Any]) -> int:
    """Delete processes with their messages and events."""
    connection.write("prune_messages", 1, ids)
    connection.write("prune_events", 1, ids)
    return connection.write("prune_processes", 1, ids)


def reopened(connection: Connection, before: int, limit: int, behind: bytes | None) -> tuple[list[bytes], bytes | None]:
    """One page of unfinished processes: those with a former run that ended by a time; where the next page begins."""
    (found,) = connection.one("find_reopened", before=before, most=limit, behind=behind or b"")
    page = [(bytes.fromhex(id), over) for id, over in json.decode(found)]
    return [id for id, over in page if over], page[-1][0] if len(page) == limit else None


def prune_runs(transaction: Transaction, process: bytes, before: int, known: int) -> int:
    """Remove a portion of the former runs that ended by a time; the answer is how many were removed or begun.

    The present run and the one before it stay. So do answers to calls and messages with keys that are younger than
    ``known``, and the messages that the oldest remaining run has taken over.
    """
    connection, runs, events = transaction.connection, 0, EVENTS_PRUNED_AT_ONCE
    while runs < PRUNED_AT_ONCE and connection.one("read_first_run", process=process, before=before)[0]:
        events -= connection.run("prune_first_run", process=process, known=known, most=events)
        runs += 1
        if events <= 0:
            break  # more may be left of it
        connection.run("forget_first_run", process=process)
    if runs:
        connection.run("prune_heard", process=process, before=before, known=known)
        connection.run("prune_answers", process=process, known=known)
    return runs


def remove_runs(transaction: Transaction, process: bytes, version: int) -> int:
    """Remove a portion of the former runs of a process that is about to go; how many were removed or begun.

    It is none if the process is no longer at that version.
    """
    connection, runs, events = transaction.connection, 0, EVENTS_PRUNED_AT_ONCE
    if not connection.one("is_at_version", process=process, version=version)[0]:
        return 0
    while runs < PRUNED_AT_ONCE and events > 0 and connection.one("has_former_run", process=process)[0]:
        gone = connection.run("prune_first_run", process=process, known=transaction.now, most=events)
        runs += 1
        events -= gone
        if events > 0:
            connection.run("forget_first_run", process=process)
    connection.run("remove_heard", process=process, most=EVENTS_PRUNED_AT_ONCE)
    return runs


def prune_rest(transaction: Transaction, limit: int) -> Pruned:
    """Remove kept keys whose time is over, and workers that ended long ago and own nothing."""
    connection, now = transaction.connection, transaction.now
    connection.run("forget_workers", before=now - WORKER_KEPT)
    return Pruned(0, connection.run("prune_keys", now=now, most=limit))


def enlist(transaction: Transaction, worker: WorkerRow, silence: int, locked: bool) -> WorkerRow:
    """Register an incarnation; doing it again changes nothing."""
    connection, now = transaction.connection, transaction.now
    connection.run(
        "enlist_worker", id=worker.id, name=worker.name, hosts=worker.hosts, now=now, due_at=now + silence,
        locked=int(locked),
    )  # fmt: skip
    [kept] = workers(connection, ended=True, ids=[worker.id])
    return kept


def beat(transaction: Transaction, beat: Beat, clock: SqliteClock) -> BeatAnswer:
    """Count a sign of life and prolong leases; an ended incarnation is told so and prolongs nothing."""
    connection, now = transaction.connection, transaction.now
    if beat.hang is not None:
        return BeatAnswer(connection.run("keep_hang", id=beat.worker, hang=beat.hang) == 1, now)
    lead = clock.beaten(connection)
    if not connection.run("count_beat", id=beat.worker, due_at=now + beat.silence, figures=beat.figures):
        return BeatAnswer(False, now, lead=lead)
    reached, oldest = connection.one("read_schema")
    fine = BeatAnswer(True, now, (), lead, ahead("sqlite", reached), outgrown("sqlite", oldest))
    if not beat.renewals:
        return fine
    cells: list[Any] = []
    worker = bytearray(beat.worker)
    for renewal in beat.renewals:
        progress = NOTHING if renewal.progress is None else renewal.progress
        cells += (bytearray(renewal.process), renewal.token, worker, progress)
    if connection.write("renew_leases", 4, cells, now + beat.lease) == len(beat.renewals):
        return fine
    lost = [id for (found,) in connection.ask("look_for_lost", 4, cells) for id in json.decode(found)]
    return replace(fine, lost=tuple(bytes.fromhex(id) for id in lost))


def retire(transaction: Transaction, worker: bytes, beats: int | None, died: bool) -> bool:
    """End an incarnation once, unless it has beaten since."""
    return transaction.connection.run("retire_worker", id=worker, now=transaction.now, beats=beats, died=int(died)) == 1


def workers(connection: Connection, ended: bool, ids: Collection[bytes] | None = None) -> list[WorkerRow]:
    """The incarnations by id, or these of them, without a look at their locks."""
    if ids is None:
        return _workers(connection.one("read_workers", ended=int(ended)))
    cells: list[Any] = [bytearray(id) for id in sorted(ids)]
    return [worker for packed in connection.ask("read_workers_of", 1, cells) for worker in _workers(packed)]


def looked_at(
    connection: Connection, locks: IncarnationLocks, ended: bool, ids: Collection[bytes] | None
) -> list[WorkerRow]:
    """The incarnations by id, or these of them, each with a look at its lock."""
    found: list[WorkerRow] = []
    for _ in range(2):
        found = [
            replace(worker, lock_free=worker.locked and worker.ended_at is None and locks.free(worker.id))
            for worker in workers(connection, ended, ids)
        ]
        alive = (worker for worker in found if worker.locked and not worker.ended_at and not worker.lock_free)
        if not any(locks.missing(worker.id) for worker in alive):
            break  # else somebody has ended it since, and its row says now whether it had died
    return found


def _workers(packed: tuple[Any, ...]) -> list[WorkerRow]:
    return [
        WorkerRow(
            bytes.fromhex(id), name, bytes.fromhex(hosts), started_at, beats, due_at, locked == 1, False, ended_at,
            died == 1, None if hang is None else bytes.fromhex(hang),
            None if figures is None else bytes.fromhex(figures),
        )
        for id, name, hosts, started_at, beats, due_at, locked, ended_at, died, hang, figures in listed(packed[0])
    ]  # fmt: skip
