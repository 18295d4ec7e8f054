"""What PostgreSQL's errors mean to the store, told by SQLSTATE alone, never by text (which holds data)."""

from __future__ import annotations

from collections.abc import Mapping

import asyncpg
from asyncpg.exceptions import ClientConfigurationError
from msgspec import json

from perdure.errors import BadRecord, StoreError, StoreFull, StoreReadOnly, StoreTooOld, StoreUnavailable
from perdure.kernel.integrity import lacking

RETRY_NOW = frozenset({"40001", "40P01"})
"""A clash with another transaction: nothing was applied, the same statement is sent again at once."""

RECONNECT = frozenset({"25006"})
"""After these the connection is dropped, because another server may be the right one by now (a fail-over)."""

STALE = frozenset({"0A000", "3F000", "42703", "42704", "42804", "42846", "42883", "42P01", "42P13", "42P18", "XX000"})
"""Errors of a connection that remembers a schema from before it was dropped and made again, or from before its types
changed: the same statement is sent again, once, on a fresh connection."""

LACKING = "PD001"
"""Perdure's own: fewer letters wait in an inbox than its row counts. The detail says of which process, and how many."""

_AGAIN = "Perdure tries again by itself"

MEANINGS: Mapping[str, tuple[type[StoreError], str]] = {
    "08": (StoreUnavailable, f"the connection to PostgreSQL failed; {_AGAIN}"),
    "0A000": (
        StoreUnavailable,
        f"if the schema changed under a prepared statement, {_AGAIN}; "
        "if it stays, this server lacks what Perdure needs: use PostgreSQL 13 or later",
    ),
    "22": (BadRecord, "PostgreSQL refused the data of a record; correct or leave out the value that it names"),
    "23": (BadRecord, "a record would break a law of the store; this is a defect, please report it with this text"),
    "25006": (
        StoreReadOnly,
        "this PostgreSQL server only reads (a standby): look at processes there, and for all else "
        "point the URL at the primary server",
    ),
    "28": (StoreError, "PostgreSQL refused the login; check user and password in the URL, and pg_hba.conf"),
    "3D000": (StoreError, "the database does not exist; create it with `createdb`, or correct the URL"),
    "3F000": (StoreTooOld, "the schema is missing; run `perdure migrate`"),
    "40": (StoreUnavailable, f"other transactions were in the way for too long; {_AGAIN}"),
    "42501": (StoreError, "the login may not do this; GRANT it CREATE on the database to migrate, or a role to work"),
    "42704": (StoreTooOld, "a type of Perdure is missing; run `perdure migrate`"),
    "42883": (StoreTooOld, "a function of Perdure is missing; run `perdure migrate`"),
    "42P01": (StoreTooOld, "a table of Perdure is missing; run `perdure migrate`"),
    "53": (StoreUnavailable, f"PostgreSQL has run out of connections or memory; {_AGAIN}"),
    "53100": (StoreFull, "the disk of PostgreSQL is full; make room, then work goes on by itself"),
    "54": (BadRecord, "a record is too large for PostgreSQL; make the value smaller"),
    "55P03": (StoreUnavailable, f"another session holds a lock on a whole table; {_AGAIN}"),
    "57": (StoreUnavailable, f"PostgreSQL stops, starts or cancelled the statement; {_AGAIN}"),
    "58": (StoreUnavailable, f"PostgreSQL cannot read or write its files; look at its log; {_AGAIN}"),
}
"""SQLSTATE or its class (first two characters) to the error that the store raises. The longer one wins."""


def retries(error: BaseException) -> bool:
    """Whether the very same statement should be sent again now."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in RETRY_NOW


def stale(error: BaseException) -> bool:
    """Whether the connection may remember tables, functions or types that have been made again since."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in STALE


def reconnects(error: BaseException) -> bool:
    """Whether the connection must be dropped although it is still open."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in RECONNECT


NEEDED: Mapping[str, str] = {
    **dict.fromkeys(("search", "count", "history", "messages", "workers", "overdue_page", "ended_page"), "look"),
    **dict.fromkeys(("loads", "backlogs", "claimed_events_from"), "look"),
    **dict.fromkeys(("start", "start_telling"), "start (or _operate, for forks)"),
    **dict.fromkeys(("send", "send_alone"), "signal (or _operate, for messages other than signals and calls)"),
    **dict.fromkeys(("commit", "commit_alone", "commit_outward", "commit_outward_alone", "seize"), "operate"),
    **dict.fromkeys(("commit_and_remove", "remove_runs", "remove_ended"), "operate"),
    **dict.fromkeys(("claimed_events", "claimed_messages", "queues", "clocks", "circuits", "leaders"), "operate"),
    **dict.fromkeys(("stream_page", "stream_head"), "look"),
    **dict.fromkeys(("notes", "eventstreams", "trim_streams", "keptfindings", "audits"), "operate"),
}
"""Which role (after the schema's name) a login needs for a query; all other queries need the role of workers."""


def translated(error: BaseException, where: str, query: str = "") -> StoreError:
    """The store's own error for one that the driver raised; ``where`` names the database for people."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        if state == LACKING:
            return lacking(*json.decode(error.detail or "", type=tuple[bytes, int, int]))
        kind, advice = MEANINGS.get(state) or MEANINGS.get(state[:2]) or (StoreError, "look at PostgreSQL's log")
        if state == "42501" and query:
            advice = (
                f"GRANT it the role whose name ends in _{NEEDED.get(query, 'work')}; `perdure migrate --roles` makes it"
            )
        return kind(f"{where}: {error} (SQLSTATE {state}); {advice}")
    if isinstance(error, ClientConfigurationError) or type(error) is ValueError:
        told = "" if "@" in str(error) else f": {error}"  # else it quotes what may be a password
        return StoreError(
            f"{where}: the URL has an option that cannot be used{told}; correct its hosts, or what follows its ?"
        )
    if isinstance(error, (asyncpg.InterfaceError, OverflowError, UnicodeError, TypeError)) and _is_about_a_value(error):
        return BadRecord(f"{where}: a value cannot be sent to PostgreSQL: {error}; correct the value or leave it out")
    return StoreUnavailable(f"{where}: PostgreSQL cannot be reached ({error or type(error).__name__}); {_AGAIN}")


def _is_about_a_value(error: BaseException) -> bool:
    return not isinstance(error, asyncpg.InterfaceError) or isinstance(error, ValueError)
