"""W6: fill a store with a million waiting or finished processes by cloning one real row of each kind."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from typing import Any

from bench.database import rss_of_family
from bench.seat import Seat, end_group

ROWS = 1_000_000
SETTLE_SECONDS = 3.0


@dataclass(frozen=True)
class Clone:
    """One table to clone from: the column that holds the seed's id, and the columns that become new for each clone."""

    table: str
    match: str
    ids: tuple[str, ...]


WAITING: dict[str, tuple[Clone, ...]] = {
    "absurd": (
        Clone("absurd.t_bench", "task_id", ("task_id", "last_attempt_run")),
        Clone("absurd.r_bench", "task_id", ("task_id", "run_id")),
        Clone("absurd.c_bench", "task_id", ("task_id", "owner_run_id")),
    ),
    "dbos": (
        Clone("dbos.workflow_status", "workflow_uuid", ("workflow_uuid",)),
        Clone("dbos.workflow_input", "workflow_uuid", ("workflow_uuid",)),
        Clone("dbos.workflow_output", "workflow_uuid", ("workflow_uuid",)),
        Clone("dbos.operation_outputs", "workflow_uuid", ("workflow_uuid",)),
    ),
    "pgqueuer": (Clone("pgqueuer", "id", ("id",)),),
    "ours": (
        Clone("perdure.process", "id", ("id",)),
        Clone("perdure.event", "process", ("process",)),
    ),
}
TASKS = {"ours": (Clone("perdure.process", "id", ("id",)),)}
FINISHED = {**WAITING, "pgqueuer": (Clone("pgqueuer_log", "job_id", ("id", "job_id")),)}


def measure(seats: tuple[Seat, Seat], n: int) -> dict[str, Any]:
    """The rate of W1 before and after a million rows came in: waiting rows in one store, finished rows in another."""
    waiting = _before_and_after(seats[0], WAITING, "waiting", n)
    finished = _before_and_after(seats[1], FINISHED, "finished", n)
    return {
        "empty_per_s": (waiting["before"] + finished["before"]) / 2,
        "waiting_per_s": waiting["after"],
        "waiting_ratio": waiting["after"] / waiting["before"],
        "finished_per_s": finished["after"],
        "finished_ratio": finished["after"] / finished["before"],
        "worker_rss_more_mib": waiting["rss"],
    }


def _before_and_after(seat: Seat, plan: dict[str, tuple[Clone, ...]], which: str, n: int) -> dict[str, float]:
    seat.prepare()
    rss = _worker_rss(seat)
    seed = seat.run("seed")[which]
    seat.run("w1", n=max(200, n // 4))
    before = seat.run("w1", n=n)["processes_per_s"]
    fill(seat, plan, seed, ROWS)
    rss = _worker_rss(seat) - rss
    return {"before": before, "after": seat.run("w1", n=n)["processes_per_s"], "rss": rss}


def measure_queue(seat: Seat, n: int) -> dict[str, Any]:
    """W13: the tasks a second that a worker claims from a queue and runs, with few waiting there and with a million."""
    seat.prepare()
    seed = seat.run("seed_task")["waiting"]
    fill(seat, TASKS, seed, n * 2)
    before = seat.run("w13", n=n)["tasks_per_s"]
    fill(seat, TASKS, seat.run("seed_task")["waiting"], ROWS)
    after = seat.run("w13", n=n)["tasks_per_s"]
    return {"few_per_s": before, "tasks_per_s": after, "ratio": after / before}


def measure_wakes(seat: Seat, n: int, events: int) -> dict[str, Any]:
    """W19: n processes with so many events each, cloned from one, are woken."""
    seat.prepare()
    waiting = seat.run("seed_wakes", histories=[events])["waiting"]
    fill(seat, WAITING, waiting, n)
    return seat.run("w19", 1_800.0)


def _worker_rss(seat: Seat) -> float:
    """Resident MiB of a worker that has settled."""
    worker = seat.worker()
    time.sleep(SETTLE_SECONDS)
    rss = rss_of_family(worker.pid)
    end_group(worker)
    return rss


def fill(seat: Seat, plan: dict[str, tuple[Clone, ...]], seed: str, rows: int) -> None:
    """Clone the seed's rows in every table of the plan, then let the store settle."""
    clones = plan[seat.who.name.partition("-")[0]]
    if seat.who.store == "sqlite":
        _fill_sqlite(seat.file, clones, bytes.fromhex(seed.replace("-", "")), rows)
        return
    for clone in clones:
        _fill_postgres(seat, clone, seed, rows)
    seat.cluster.run(seat.name, "VACUUM ANALYZE", "CHECKPOINT")


def _fill_postgres(seat: Seat, clone: Clone, seed: str, rows: int) -> None:
    schema, _, table = clone.table.rpartition(".")
    columns = seat.cluster.fetch(
        seat.name,
        "SELECT column_name, data_type FROM information_schema.columns"
        " WHERE table_name = $1 AND table_schema = $2 AND is_generated = 'NEVER' ORDER BY ordinal_position",
        table,
        schema or "public",
    )
    names = ", ".join(f'"{row[0]}"' for row in columns)
    values = ", ".join(_new_id(row[0], row[1], rows) if row[0] in clone.ids else f't."{row[0]}"' for row in columns)
    seat.cluster.run(
        seat.name,
        f"INSERT INTO {clone.table} ({names}) SELECT {values} FROM {clone.table} t, generate_series(1, {rows}) g"
        f" WHERE t.{clone.match}::text = '{seed}'",
    )


def _new_id(column: str, kind: str, rows: int) -> str:
    """An id of the same shape: numbers go below zero, time-ordered ids lie in the milliseconds before the seed's."""
    if kind in ("bigint", "integer"):
        return f'-(t."{column}" + g * 1000)'
    text = f"""replace(t."{column}"::text, '-', '')"""
    moment = f"('x' || lpad(substr({text}, 1, 12), 16, '0'))::bit(64)::bigint - {rows} + g - 1"
    chance = f"substr(md5({text} || g), 14)"
    ordered = f"(lpad(to_hex({moment}), 12, '0') || '7' || {chance})::uuid"
    if kind == "uuid":
        return ordered
    return f"md5({text} || g)::uuid::text"


def _fill_sqlite(path: str, clones: tuple[Clone, ...], seed: bytes, rows: int) -> None:
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)

    def new_id(old: bytes | None, g: int) -> bytes | None:
        if old is None:
            return None
        moment = int.from_bytes(old[:6], "big") - rows + g - 1
        return moment.to_bytes(6, "big") + old[6:]

    connection.create_function("new_id", 2, new_id, deterministic=True)
    connection.execute("BEGIN IMMEDIATE")
    for clone in clones:
        table = clone.table.rpartition(".")[2]
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        values = ", ".join(f'new_id(t."{one}", g)' if one in clone.ids else f't."{one}"' for one in columns)
        connection.execute(
            f"WITH RECURSIVE series(g) AS (SELECT 1 UNION ALL SELECT g + 1 FROM series WHERE g < {rows})"
            f" INSERT INTO {table} SELECT {values} FROM {table} t, series WHERE t.{clone.match} = ?",
            (seed,),
        )
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
