"""Searching on SQLite: the one place where SQL is put together, and only its conditions; all values are parameters."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from operator import attrgetter
from typing import Any

from msgspec import DecodeError, json
from msgspec.structs import replace

from perdure.kernel.event import ANSWERS, Event, EventType, HistoryWanted
from perdure.kernel.names import OPERATION
from perdure.kernel.process import Process, Status
from perdure.loop import give_way
from perdure.store.base import EVENT_BYTES, Search, by_process
from perdure.store.sqlite import row
from perdure.store.sqlite.connection import ROWS, Connection
from perdure.store.sqlite.row import STATUS, STATUS_NUMBER
from perdure.store.sqlite.text import listed

_NOTICED = frozenset({Status.HELD, Status.BROKEN, Status.FAILED, Status.CANCELLED})
"""The statuses that people look for; such rows are few, so an index on them is quicker than a scan from the newest."""

_ID_BYTES = 16
_ONE_OF = """id IN (
    WITH RECURSIVE place (at) AS (SELECT 1 UNION ALL SELECT at + 16 FROM place WHERE at < ?)
    SELECT substr(?, at, 16) FROM place
)"""
"""Ids are given as one value and cut here: as many single values would be bounded in number, and the answer cut."""
_IS_AN_OPERATION = f"kind >= '{OPERATION}' AND kind <= '{OPERATION}'"
"""The index's own words, so that it is used."""
_WALK = 10
"""So many of the newest rows are looked at, for each row that is wanted, before the index is asked."""
_BEHIND_ALL = b"\xff" * 17
AT_A_TIME = 100
"""How many rows one statement reads of a list."""


def search(connection: Connection, search: Search) -> list[Process]:
    """Processes, newest first.

    Of many a few are read at a time. The processor is given away between, else a small writer of another program, whose
    commit is on disk, would wait for it until all are read.
    """
    if search.ids is not None or search.limit <= AT_A_TIME:
        return _found(connection, search)
    found: list[Process] = []
    read = _newest if _by_status(search) else _found
    with connection.one_moment():
        while len(found) < search.limit:
            part = replace(search, limit=min(AT_A_TIME, search.limit - len(found)))
            if found:
                part = replace(part, before_id=found[-1].id)
            some = read(connection, part)
            if len(some) < part.limit:
                if read is _newest:  # few of the newest fit: the index finds all that is left
                    some = _found(connection, replace(part, limit=search.limit - len(found)))
                return found + some
            found += some
            give_way()
    return found


def _found(connection: Connection, search: Search) -> list[Process]:
    if _by_status(search):
        # Where very many fit they lie close together, and each page of them would sort all that the index finds.
        found = _newest(connection, search)
        if len(found) == search.limit:
            return found
    built = _conditions(search)
    if built is None:
        return []
    query = "search_noticed" if _by_status(search) else "search_processes"
    return row.processes(connection.search(query, built[0], [*built[1], search.limit]))


def _newest(connection: Connection, search: Search) -> list[Process]:
    """Those that fit among so many of the newest rows."""
    built = _conditions(search, walk=True)
    if built is None:
        return []
    among = [search.before_id or _BEHIND_ALL, search.limit * _WALK]
    return row.processes(connection.search("search_newest", built[0], [*among, *built[1], search.limit]))


def _by_status(search: Search) -> bool:
    """Whether an index finds the rows by their status."""
    return bool(search.statuses) and _NOTICED.issuperset(search.statuses) and search.ids is None and search.key is None


def count(connection: Connection, search: Search) -> list[tuple[str, Status, int]]:
    """How many processes there are by kind and status, ordered by both; a count has no pages."""
    built = _conditions(replace(search, before_id=None))
    if built is None:
        return []
    where, given = built
    (counted,) = connection.search("count_processes", where, given)
    rows = [(kind, STATUS[status], number) for kind, status, number in listed(counted)]
    return sorted(rows, key=lambda row: (row[0].encode(), STATUS_NUMBER[row[1]]))


def history_query(backward: bool, types: Sequence[EventType], names: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The query for events of these types and names, if any are given, and what narrows it."""
    end = "_backward" if backward else ""
    if not types and not names:
        return f"read_history{end}", {}
    if len(names) == 1 and list(types) == [EventType.PUBLISHED]:
        return f"read_published{end}", {"name": names[0]}
    if names and set(types) == ANSWERS:
        return "read_answers", {"names": json.encode(names).decode()}
    numbers = json.encode([int(type) for type in types]).decode() if types else None
    return f"read_some_history{end}", {"types": numbers, "names": json.encode(names).decode() if names else None}


def histories(connection: Connection, wants: Sequence[HistoryWanted], most: int) -> dict[bytes, list[Event]]:
    """For each process the events that are wanted, up to ``most`` bytes; of very many wants only the first."""
    if not wants:
        return {}
    asked = sorted(wants, key=attrgetter("process"))[:ROWS]
    cells = [cell for want in asked for cell in (want.process, want.run, want.first, want.last)]
    [packed] = connection.ask("read_some_histories", 4, cells, most, EVENT_BYTES)
    return by_process(asked, row.events(packed))


def same_json(stored: str | bytes, wanted: str) -> bool:
    """Whether two JSON texts mean the same value, in whatever order their members are."""
    try:
        return bool(json.decode(stored) == json.decode(wanted))
    except DecodeError:
        return False


def _conditions(search: Search, *, walk: bool = False) -> tuple[str, list[Any]] | None:
    """The conditions and their values; None if nothing can fit them. ``walk`` goes through the rows by their ids."""
    if not _writable(search):
        return None
    where: list[str] = ["1"]
    given: list[Any] = []

    def narrow(condition: str, *values: Any) -> None:
        where.append(condition)
        given.extend(values)

    if search.ids is not None:
        ids = b"".join(id for id in search.ids if len(id) == _ID_BYTES)
        if not ids:
            return None
        if len(ids) == _ID_BYTES:
            narrow("id = ?", ids)  # the same, and quicker
        else:
            narrow(_ONE_OF, len(ids) - _ID_BYTES, ids)
    if search.kind == OPERATION:
        narrow(_IS_AN_OPERATION)
    elif search.kind is not None:
        narrow("kind = ?", search.kind)
    if search.without_tasks:
        narrow("(kind < '@' OR kind >= 'A')")
    if search.roots:
        narrow("parent IS NULL")
    if search.key is not None:
        narrow("key IS NOT NULL AND key = ?", search.key)
    if search.key_prefix is not None:
        narrow("key IS NOT NULL AND key >= ?", search.key_prefix)
        end = _after_prefix(search.key_prefix)
        if end is not None:
            narrow("key < ?", end)
    if search.statuses:
        numbers = [STATUS_NUMBER[status] for status in search.statuses]
        marks = ", ".join("?" * len(numbers))
        if _NOTICED.issuperset(search.statuses) and search.ids is None and not walk:
            narrow(f"status >= 2 AND status IN ({marks})", *numbers)  # in the index's own words, so that it is used
        else:
            narrow(f"+status IN ({marks})", *numbers)  # a plus keeps SQLite from reading all completed rows first
    if search.created_from is not None:
        narrow("created_at >= ?", search.created_from)
    if search.created_to is not None:
        narrow("created_at < ?", search.created_to)
    for name, value in search.attributes:
        _narrow_attribute(narrow, name, value)
    if search.before_id is not None:
        narrow("id < ?", search.before_id)
    return " AND ".join(where), given


def _narrow_attribute(narrow: Any, name: str, value: str) -> None:
    """One attribute must be equal: scalars are compared by SQLite, arrays and objects member by member."""
    wanted = json.decode(value)
    each = "SELECT 1 FROM json_each(CAST(attributes AS TEXT)) AS one WHERE one.key = ?"
    # A CASE, since otherwise one row whose attributes are not JSON would fail the whole search.
    valid = "json_valid(CAST(attributes AS TEXT)) AND json_type(CAST(attributes AS TEXT)) = 'object'"
    there = f"attributes IS NOT NULL AND CASE WHEN {valid} THEN EXISTS"
    if isinstance(wanted, list | dict):
        narrow(f"{there} ({each} AND one.type IN ('array', 'object') AND same_json(one.value, ?)) END", name, value)
    elif wanted is None or isinstance(wanted, bool):
        narrow(f"{there} ({each} AND one.type = ?) END", name, json.encode(wanted).decode())
    elif isinstance(wanted, str):
        narrow(f"{there} ({each} AND one.type = 'text' AND one.value = ?) END", name, wanted)
    elif isinstance(wanted, int) and not -(1 << 63) <= wanted < 1 << 63:
        narrow(f"{there} ({each} AND one.type IN ('integer', 'real') AND one.value = ?) END", name, _as_float(wanted))
    else:
        narrow(f"{there} ({each} AND one.type IN ('integer', 'real') AND one.value = ?) END", name, wanted)


def _as_float(number: int) -> float:
    """A number that no integer of SQLite holds, as SQLite reads it from JSON; one that is too large equals none."""
    try:
        return float(number)
    except OverflowError:
        return inf


def _writable(search: Search) -> bool:
    """Whether all texts of a search can be written as UTF-8; others are nowhere stored."""
    texts = [search.kind, search.key, search.key_prefix, *(text for pair in search.attributes for text in pair)]
    try:
        for text in texts:
            if text is not None:
                text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _after_prefix(prefix: str) -> str | None:
    """The first text, in the order of bytes, that sorts after all texts with this prefix; None if there is none."""
    last = 0x10FFFF
    for at in range(len(prefix) - 1, -1, -1):
        point = ord(prefix[at])
        if point < last:
            return prefix[:at] + chr(0xE000 if point == 0xD7FF else point + 1)
    return None
