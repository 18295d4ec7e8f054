"""The bare limits of this machine, probed in the same run as the engines: commits, batches and syncs."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from typing import Any

import asyncpg

from bench.driver import Task, main, spread

TABLE = "CREATE TABLE IF NOT EXISTS bare (id bigint, kind text, body bytea)"
BATCHES = (100, 500, 1_000)
PROBE_SECONDS = 0.5


def probe_file(scratch: str) -> dict[str, Any]:
    """Append 4 KiB and fdatasync, one after another."""
    path, block = os.path.join(scratch, "sync.probe"), b"x" * 4096
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    times: list[float] = []
    end = time.perf_counter() + PROBE_SECONDS
    while time.perf_counter() < end:
        begun = time.perf_counter()
        os.write(file, block)
        os.fdatasync(file)
        times.append(time.perf_counter() - begun)
    os.close(file)
    os.unlink(path)
    return {"fdatasync_per_s": len(times) / sum(times), "fdatasync_p50_ms": spread(times)["p50_ms"]}


async def probe_postgres(url: str) -> dict[str, Any]:
    """One row INSERT+COMMIT through asyncpg, and rows by unnest in batches."""
    connection = await asyncpg.connect(url)
    await connection.execute(TABLE)
    insert = await connection.prepare("INSERT INTO bare VALUES ($1, $2, $3)")
    times: list[float] = []
    end = time.perf_counter() + PROBE_SECONDS
    while time.perf_counter() < end:
        begun = time.perf_counter()
        await insert.fetch(len(times), "order", b"{}")
        times.append(time.perf_counter() - begun)
    answer: dict[str, Any] = {"pg_commit_per_s": len(times) / sum(times), "pg_commit_p50_ms": spread(times)["p50_ms"]}
    many = await connection.prepare("INSERT INTO bare SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[])")
    for size in BATCHES:
        rows = (list(range(size)), ["order"] * size, [b"{}"] * size)
        done, begun = 0, time.perf_counter()
        while time.perf_counter() < begun + PROBE_SECONDS / 2:
            await many.fetch(*rows)
            done += size
        answer[f"pg_unnest_{size}_rows_per_s"] = done / (time.perf_counter() - begun)
    times = []
    for _ in range(1000):
        begun = time.perf_counter()
        await connection.fetchval("SELECT 1")
        times.append(time.perf_counter() - begun)
    answer["pg_round_trip_p50_ms"] = spread(times)["p50_ms"]
    await connection.close()
    return answer


def probe_sqlite(scratch: str) -> dict[str, Any]:
    """One row INSERT+COMMIT in WAL with synchronous FULL, and batches of rows."""
    path = os.path.join(scratch, "probe.db")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE bare (id integer, kind text, body blob)")
    times: list[float] = []
    end = time.perf_counter() + PROBE_SECONDS
    while time.perf_counter() < end:
        begun = time.perf_counter()
        connection.execute("INSERT INTO bare VALUES (?, ?, ?)", (len(times), "order", b"{}"))
        times.append(time.perf_counter() - begun)
    answer: dict[str, Any] = {
        "sqlite_commit_per_s": len(times) / sum(times),
        "sqlite_commit_p50_ms": spread(times)["p50_ms"],
    }
    for size in BATCHES:
        rows = [(i, "order", b"{}") for i in range(size)]
        done, begun = 0, time.perf_counter()
        while time.perf_counter() < begun + PROBE_SECONDS / 2:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO bare VALUES (?, ?, ?)", rows)
            connection.execute("COMMIT")
            done += size
        answer[f"sqlite_{size}_rows_per_s"] = done / (time.perf_counter() - begun)
    connection.close()
    return answer


def probe(task: Task) -> dict[str, Any]:
    """Every limit, in about six seconds."""
    return {**probe_file(task.scratch), **asyncio.run(probe_postgres(task.url)), **probe_sqlite(task.scratch)}


if __name__ == "__main__":
    main({"probe": probe})
