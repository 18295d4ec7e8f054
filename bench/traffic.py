"""W9: what a process and a step cost the database: transactions, statements, reads and bytes of log."""

from __future__ import annotations

import re
import time
from typing import Any

from bench.seat import Seat

SETTINGS = ("shared_preload_libraries=pg_stat_statements", "pg_stat_statements.max=5000")
STEPS = 10
IDLE_STEPS = 1_000
SWEEPS = re.compile(r"perdure\.(workers|overdue|prune|now)\b")  # by the clock, whatever the number of steps
FLUSH_SECONDS = 1.5
WRITING = re.compile(
    r"\b(insert|update|delete|pg_notify|set_config)\b"
    r"|perdure\.(start|send|claim|commit|beat|enlist|retire)"
    r"|absurd\.(spawn|claim|set_task|complete|schedule)"
)


def measure(seat: Seat, n: int) -> dict[str, Any]:
    """Three loads on one database: one-step processes, ten-step processes, and steps one by one when idle."""
    seat.cluster.run(seat.name, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    seat.prepare()
    one = _load(seat, "w1", n=n, steps=1)
    answer: dict[str, Any] = {f"{name}_per_process": value / n for name, value in one.items()}
    if seat.who.name != "pgqueuer":
        ten = _load(seat, "w2", n=n, steps=STEPS)
        further = n * (STEPS - 1)
        answer |= {f"{name}_per_step": max(0.0, ten[name] - one[name]) / further for name in one}
        answer |= {f"{name}_per_step_all_in": value / (n * STEPS) for name, value in ten.items()}
        idle = _load(seat, "w3", n=IDLE_STEPS)
        answer["transactions_per_idle_step"] = idle["transactions"] / IDLE_STEPS
    answer["top"] = _top(seat)
    return answer


def _load(seat: Seat, role: str, **asked: int) -> dict[str, float]:
    """Run a role and count what it made the database do."""
    before = _counts(seat)
    seat.run(role, **asked)
    time.sleep(FLUSH_SECONDS)
    after = _counts(seat)
    return {name: after[name] - before[name] for name in after}


def _counts(seat: Seat) -> dict[str, float]:
    row = seat.cluster.fetch(
        seat.name,
        "SELECT xact_commit::float8, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8"
        " FROM pg_stat_database WHERE datname = current_database()",
    )[0]
    statements = _statements(seat)
    return {
        "transactions": row[0],
        "wal_bytes": row[1],
        "statements": float(sum(calls for _, calls in statements)),
        "reads": float(sum(calls for text, calls in statements if _is_read(text))),
    }


def _statements(seat: Seat) -> list[tuple[str, int]]:
    rows = seat.cluster.fetch(
        seat.name,
        "SELECT query, calls FROM pg_stat_statements JOIN pg_database d ON d.oid = dbid"
        " WHERE d.datname = current_database() AND query NOT LIKE '%pg_stat%'",
    )
    return [(" ".join(str(row[0]).lower().split()), int(row[1])) for row in rows]


def _is_read(text: str) -> bool:
    """Whether a statement only reads: a select that calls no writing function and holds no writing clause."""
    plain = text.replace('"', "")
    return plain.startswith(("select", "with")) and not WRITING.search(plain) and not SWEEPS.search(plain)


def _top(seat: Seat) -> list[dict[str, Any]]:
    ordered = sorted(_statements(seat), key=lambda pair: -pair[1])
    return [{"calls": calls, "query": text[:120]} for text, calls in ordered[:6]]
