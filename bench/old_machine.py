"""W20's old machine: one that has answered a million calls, by copying the rows of some thousand that were real.

Each copy has runs, messages and answers of its own, behind those of the copies before it, so the machine's row is what
it would be after as many calls, and everything that is looked up by process, run, number or name has to pass them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from bench.seat import Seat

REAL = 4_000  # calls that are made
TIMES = 25  # so many times the calls of a run it has behind it then: a million, if a run makes 40,000
SECONDS = 1_800.0

_ANSWERS = "t.type IN (38, 39)"


def measure(seat: Seat, n: int) -> dict[str, Any]:
    """Make the old machine, then let W20 run. A peer has no old one: its rows are not ours to copy."""
    if seat.who.home:
        return seat.run("w20", SECONDS, n=n)
    real = min(REAL, n)
    seed = seat.run("seed_machine", SECONDS, n=real)
    age(seat, seed, n * TIMES // real)
    return seat.run("w20", SECONDS, n=n, old=seed["id"])


def age(seat: Seat, seed: Mapping[str, Any], copies: int) -> None:
    """Make of a machine one that has lived through that many copies of its life."""
    if seat.who.store == "sqlite":
        connection = sqlite3.connect(seat.file, isolation_level=None, timeout=60)
        try:
            connection.execute("BEGIN IMMEDIATE")
            columns = {
                table: [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
                for table in ("event", "message")
            }
            for statement in _statements(columns, seed, copies, postgres=False):
                connection.execute(statement)
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()
        return
    found = seat.cluster.fetch(
        seat.name,
        "SELECT table_name, column_name FROM information_schema.columns"
        " WHERE table_schema = 'perdure' AND table_name IN ('event', 'message') AND is_generated = 'NEVER'",
    )
    columns = {table: [row[1] for row in found if row[0] == table] for table in ("event", "message")}
    seat.cluster.run(seat.name, *_statements(columns, seed, copies, postgres=True), "VACUUM ANALYZE", "CHECKPOINT")


def _statements(
    columns: Mapping[str, list[str]], seed: Mapping[str, Any], copies: int, *, postgres: bool
) -> tuple[str, str, str]:
    """The copies of its events and messages, then its row: as the last copy has left it."""
    runs, calls = seed["runs"], seed["calls"]
    one = f"'{seed['id']}'" if postgres else f"x'{seed['id'].replace('-', '')}'"
    schema = "perdure." if postgres else ""
    series = (
        f"generate_series(1, {copies - 1}) AS s(g)"
        if postgres
        else "(WITH RECURSIVE s(g) AS (SELECT 1 UNION ALL SELECT g + 1 FROM s"
        f" WHERE g < {copies - 1}) SELECT g FROM s) AS s"
    )
    number = "substr(t.name, 5)::int" if postgres else "CAST(substr(t.name, 5) AS INTEGER)"
    new = {
        "event": {
            "run": f"t.run + s.g * {runs}",
            "message": f"t.message + s.g * {calls}",
            "name": f"CASE WHEN {_ANSWERS} THEN 'add:' || ({number} + s.g * {calls}) ELSE t.name END",
        },
        "message": {
            "number": f"t.number + s.g * {calls}",
            "consumed_run": f"t.consumed_run + s.g * {runs}",
            "id": "gen_random_uuid()" if postgres else "randomblob(16)",
        },
    }
    copied = [
        f"INSERT INTO {schema}{table} ({', '.join(columns[table])})"
        f" SELECT {', '.join(new[table].get(column, f't.{column}') for column in columns[table])}"
        f" FROM {schema}{table} t CROSS JOIN {series} WHERE t.process = {one}"
        for table in ("event", "message")
    ]
    was, now = f'"run":{runs},', f'"run":{runs * copies},'
    state = (
        f"convert_to(replace(convert_from(state, 'UTF8'), '{was}', '{now}'), 'UTF8')"
        if postgres
        else f"CAST(replace(CAST(state AS TEXT), '{was}', '{now}') AS BLOB)"
    )
    row = (
        f"UPDATE {schema}process SET run = {runs * copies}, inbox = {calls * copies}, seen = {calls * copies},"
        f" state = {state} WHERE id = {one}"
    )
    return copied[0], copied[1], row
