"""Workers on SQLite: enlisting, beats with the leases they prolong, and retirement (rules 11 and 12)."""

from __future__ import annotations

from typing import Any

from msgspec import json
from msgspec.structs import replace

from perdure.kernel.worker import Beat, BeatAnswer, Worker
from perdure.store.migrate import ahead, outgrown
from perdure.store.sqlite_clock import SqliteClock
from perdure.store.sqlite_connection import NOTHING, Connection
from perdure.store.sqlite_text import listed
from perdure.store.sqlite_writer import Transaction


def enlist(transaction: Transaction, worker: Worker, silence: int, locked: bool) -> Worker:
    """Register an incarnation; doing it again changes nothing."""
    connection, now = transaction.connection, transaction.now
    connection.run(
        "enlist_worker", id=worker.id, name=worker.name, hosts=worker.hosts, now=now, due_at=now + silence,
        locked=int(locked),
    )  # fmt: skip
    [kept] = _workers(connection.one("read_worker", id=worker.id))
    return kept


def beat(transaction: Transaction, beat: Beat, clock: SqliteClock) -> BeatAnswer:
    """Count a sign of life and prolong leases; an ended incarnation is told so and prolongs nothing."""
    connection, now = transaction.connection, transaction.now
    if beat.hang is not None:
        return BeatAnswer(connection.run("keep_hang", id=beat.worker, hang=beat.hang) == 1, now)
    lead = clock.beaten(connection)
    if not connection.run("count_beat", id=beat.worker, due_at=now + beat.silence):
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


def workers(connection: Connection, ended: bool) -> list[Worker]:
    """The incarnations by id, without a look at their locks."""
    return _workers(connection.one("read_workers", ended=int(ended)))


def _workers(packed: tuple[Any, ...]) -> list[Worker]:
    return [
        Worker(
            bytes.fromhex(id), name, bytes.fromhex(hosts), started_at, beats, due_at, locked == 1, False, ended_at,
            died == 1, None if hang is None else bytes.fromhex(hang),
        )
        for id, name, hosts, started_at, beats, due_at, locked, ended_at, died, hang in listed(packed[0])
    ]  # fmt: skip
