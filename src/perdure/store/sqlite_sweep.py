"""Sweeping on SQLite: rows that are overdue, and rows whose time to be pruned has come (rule 24)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import json

from perdure.kernel.process import Process
from perdure.limits import PRUNED_EVENTS
from perdure.store import sqlite_row
from perdure.store.base import Pruned, Search
from perdure.store.sqlite_connection import Connection
from perdure.store.sqlite_start import input_digest
from perdure.store.sqlite_text import listed
from perdure.store.sqlite_writer import Transaction

PRUNED_AT_ONCE = 100
EVENTS_PRUNED_AT_ONCE = PRUNED_EVENTS
"""Processes, and events of them, that one transaction prunes, so that it stays short (unless one has more alone)."""

_FIRST = (-(1 << 63), b"")
"""Before the first row: no time and no id is smaller."""

WORKER_KEPT = 24 * 3600 * 1_000_000
"""Microseconds for which an ended worker stays listed."""


def overdue(connection: Connection, search: Search, now: int) -> list[Process]:
    """The rows that a sweep must look at, the longest overdue first."""
    name = f"overdue_{search.overdue}"
    since, behind = search.after or _FIRST
    kind, code = search.after_pair or ("", "")
    return sqlite_row.processes(
        connection.one(
            name, now=now, most=search.limit, owner=search.owner, since=since, behind=behind, kind=kind, code=code
        )
    )


def finished(connection: Connection, before: int, limit: int) -> list[list[bytes]]:
    """Processes that finished by a time, the longest finished first, in groups for one transaction each."""
    (found,) = connection.one("find_finished", before=before, most=limit)
    groups: list[list[bytes]] = []
    events = 0
    for id, count in json.decode(found):
        events += count
        if not groups or len(groups[-1]) == PRUNED_AT_ONCE or events > EVENTS_PRUNED_AT_ONCE:
            groups.append([])
            events = count
        groups[-1].append(bytes.fromhex(id))
    return groups


def prune(transaction: Transaction, ids: Sequence[bytes], before: int, keys: int) -> int:
    """Remove those of the processes that are still finished, with all that is theirs; keep their keys for a while."""
    connection, until = transaction.connection, transaction.now + keys
    gone: list[Any] = []
    kept: list[Any] = []
    for heads, inputs in connection.ask("read_finished", 1, list(ids), before):
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
    connection.write("prune_messages", 1, gone)
    connection.write("prune_events", 1, gone)
    return connection.write("prune_processes", 1, gone)


def reopened(connection: Connection, before: int, limit: int, behind: bytes | None) -> tuple[list[bytes], bytes | None]:
    """Of a page of unfinished processes with former runs, those of which some ended by a time; where to go on."""
    (found,) = connection.one("find_reopened", before=before, most=limit, behind=behind or b"")
    page = [(bytes.fromhex(id), over) for id, over in json.decode(found)]
    return [id for id, over in page if over], page[-1][0] if len(page) == limit else None


def prune_runs(transaction: Transaction, process: bytes, before: int, known: int) -> int:
    """Remove former runs that ended by a time, a portion of them; how many were removed or begun with.

    The present run and the one before it stay. So do answers to calls, and messages with keys, that are younger than
    ``known``, and the messages that the oldest run left has taken over.
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


def prune_rest(transaction: Transaction, limit: int) -> Pruned:
    """Remove kept keys whose time is over, and workers that ended long ago and own nothing."""
    connection, now = transaction.connection, transaction.now
    connection.run("forget_workers", before=now - WORKER_KEPT)
    return Pruned(0, connection.run("prune_keys", now=now, most=limit))
