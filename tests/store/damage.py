"""Bad values for every column, as SQL: what a damaged disk, a hand in the database, or a newer Perdure may leave."""

from __future__ import annotations

HIGHEST, LOWEST = (1 << 63) - 1, -(1 << 63)

_NUMBERS = (str(HIGHEST), str(LOWEST), "-1", "999")
_TEXT = ("CAST(x'61ff62' AS TEXT)", "CAST(x'eda080' AS TEXT)", "''")
_BYTES = ("x'ff00'", "x''", "CAST('{' AS BLOB)")

SQLITE: dict[str, dict[str, tuple[str, ...]]] = {
    "process": {
        "kind": _TEXT, "key": _TEXT[:2], "input": _BYTES, "status": ("7", "0", "-1"), "run": _NUMBERS,
        "version": _NUMBERS, "token": _NUMBERS, "owner": ("x'01'", "x''"), "due_at": _NUMBERS, "reminder": ("7", "-1"),
        "inbox": _NUMBERS, "seen": _NUMBERS, "events": _NUMBERS, "awaiting": _TEXT, "deaths": _NUMBERS,
        "alone_deaths": _NUMBERS, "deadline": _NUMBERS, "priority": ("77", "-1"), "attributes": _BYTES,
        "state": _BYTES, "progress": _BYTES, "result": _BYTES, "error": _BYTES, "parent": ("x'01'", *_BYTES),
        "code": _TEXT, "created_at": _NUMBERS, "opened_at": _NUMBERS, "changed_at": _NUMBERS, "share": _TEXT,
        "cost": _NUMBERS,
    },
    "event": {
        "turn": _NUMBERS, "type": ("77", "-1", "0", str(HIGHEST)), "at": _NUMBERS, "place": _TEXT, "name": _TEXT,
        "payload": _BYTES, "digest": _BYTES, "message": _NUMBERS, "token": _NUMBERS, "version": _NUMBERS,
        "run": ("7",), "number": ("7", "999"),
    },
    "message": {
        "id": ("x'01'",), "type": ("77", "-1", "0", str(HIGHEST)), "name": _TEXT, "payload": _BYTES, "key": _TEXT[:2],
        "sender": _BYTES, "at": _NUMBERS, "consumed_run": ("7",), "consumed_by": ("7",), "number": ("7", "999"),
    },
    "worker": {
        "name": _TEXT, "hosts": _BYTES, "started_at": _NUMBERS, "beats": _NUMBERS, "due_at": _NUMBERS,
        "locked": ("7",), "died": ("7",),
    },
    "queue": {"blocked_by": _TEXT, "who": _TEXT, "why": _TEXT, "turn": _TEXT, "next_at": _NUMBERS[:2]},
    "circuit": {
        "state": _TEXT, "reason": _TEXT, "why": _TEXT, "since": _NUMBERS, "until": _NUMBERS, "opened": _NUMBERS,
    },
    "leader": {"candidate": _TEXT, "program": _TEXT, "term": _NUMBERS, "until": _NUMBERS, "released": _NUMBERS},
    "note": {"content": _TEXT, "changed_at": _NUMBERS},
}  # fmt: skip
"""Columns and values; constraints are switched off for them, as whoever edits a file may do."""

_TIMES = ("'infinity'", "'-infinity'", "'294276-12-31'", "'4713-01-01 BC'")
_INTS = ("2147483647", "-2147483648", "-1", "999")
_SHORT = ("32767", "-32768", "-1")
_BYTEA = (r"'\xff00'", "''", "'{'")
_JSON = ("""'{"a": 1e400}'""", "'[1]'", "'1'")
_STRANGE = (r"E'\x01'", "''")

POSTGRES: dict[str, dict[str, tuple[str, ...]]] = {
    "process": {
        "kind": _STRANGE, "key": _STRANGE[:1], "input": _BYTEA, "run": _INTS, "version": _INTS, "token": _INTS,
        "owner": ("gen_random_uuid()",), "due_at": _TIMES, "inbox": _INTS, "seen": _INTS, "events": _INTS,
        "awaiting": _STRANGE, "deaths": _SHORT, "alone_deaths": _SHORT, "deadline": _TIMES, "attributes": _JSON,
        "state": _BYTEA, "progress": _BYTEA, "result": _BYTEA, "error": _BYTEA, "parent": ("gen_random_uuid()",),
        "code": _STRANGE, "created_at": _TIMES, "opened_at": _TIMES, "changed_at": _TIMES, "share": _STRANGE,
        "cost": _INTS, "reminder": ("true",),
    },
    "event": {
        "turn": _INTS, "type": ("77", *_SHORT), "at": _TIMES, "place": _STRANGE, "name": _STRANGE, "payload": _BYTEA,
        "digest": _BYTEA, "message": _INTS, "token": _INTS, "version": _INTS, "run": ("7",), "number": ("7", "999"),
    },
    "message": {
        "id": ("gen_random_uuid()",), "type": ("77", *_SHORT), "name": _STRANGE, "payload": _BYTEA,
        "key": _STRANGE[:1], "sender": _BYTEA, "at": _TIMES, "consumed_run": ("7",), "consumed_by": ("7",),
        "number": ("7", "999"),
    },
    "worker": {"name": _STRANGE, "hosts": _BYTEA, "started_at": _TIMES, "due_at": _TIMES, "beats": ("-1",)},
    "queue": {"blocked_by": _STRANGE, "who": _STRANGE, "why": _STRANGE, "turn": _STRANGE, "next_at": _TIMES},
    "circuit": {"state": _STRANGE, "reason": _STRANGE, "since": _TIMES, "until": _TIMES, "opened": _INTS},
    "leader": {"candidate": _STRANGE, "program": _STRANGE, "since": _TIMES, "until": _TIMES},
    "note": {"content": _STRANGE, "changed_at": _TIMES},
}  # fmt: skip
"""The same for PostgreSQL, which keeps its constraints, its types and its encoding."""

MISSING = ("first", "last")


def named(values: dict[str, dict[str, tuple[str, ...]]], table: str) -> list[str]:
    """The damages of a table, as ``column: value``."""
    return [f"{column}: {value}" for column, some in values[table].items() for value in some]


def statement(prefix: str, table: str, damage: str, mark: str) -> str:
    """The SQL that does it to the last row of a process, or to a row by its id or name; ``mark`` is the parameter."""
    what, _, value = damage.partition(": ")
    by_name = dict.fromkeys(("queue", "circuit", "leader", "note"), "name")
    key = ({"process": "id", "worker": "id"} | by_name).get(table)
    if key is not None:
        return f"UPDATE {prefix}{table} SET {what} = {value} WHERE {key} = {mark}"  # noqa: S608
    order = "min" if value == "the first" else "max"
    where = f"process = {mark} AND number = (SELECT {order}(number) FROM {prefix}{table} WHERE process = {mark})"  # noqa: S608
    if what == "missing":
        return f"DELETE FROM {prefix}{table} WHERE {where}"  # noqa: S608
    return f"UPDATE {prefix}{table} SET {what} = {value} WHERE {where}"  # noqa: S608
