"""W8: what an engine costs when it does nothing, and what it leaves behind."""

from __future__ import annotations

import os
import subprocess
import time
from statistics import median
from typing import Any

from bench.contestant import Contestant
from bench.database import cpu_of_family, rss_of_family
from bench.seat import Seat, end_group

IMPORTS = 7
IDLE_SECONDS = 10.0
SETTLE_SECONDS = 3.0
FIRST_LOAD = 1_000


def measure(seat: Seat, n: int) -> dict[str, Any]:
    """Import time, CPU and memory of an idle worker, memory after 1,000 processes, bytes kept for each process."""
    answer: dict[str, Any] = {"import_ms": import_ms(seat.who)}
    seat.prepare()
    worker = seat.worker()
    time.sleep(SETTLE_SECONDS)
    answer["rss_fresh_mb"] = rss_of_family(worker.pid) * 1.048576
    cpu, server = cpu_of_family(worker.pid), seat.cluster.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    answer["idle_cpu_percent"] = (cpu_of_family(worker.pid) - cpu) / IDLE_SECONDS * 100
    if seat.who.store == "postgres":
        answer["idle_server_cpu_percent"] = (seat.cluster.cpu_seconds() - server) / IDLE_SECONDS * 100
    seat.run("w10", n=FIRST_LOAD)
    answer["rss_after_mb"] = rss_of_family(worker.pid) * 1.048576
    if seat.who.store != "own":
        before = stored_bytes(seat)
        seat.run("w10", n=n)
        end_group(worker)
        as_left = (stored_bytes(seat, compact=False) - before) / n
        answer |= {"bytes_as_left": as_left, "bytes_each": (stored_bytes(seat) - before) / n}
    return answer


def import_ms(who: Contestant) -> float:
    """The median time of starting Python with the import, less that of starting Python without."""

    def once(code: str) -> float:
        begun = time.perf_counter()
        subprocess.run([who.python, "-c", code], check=True, env=who.environment(), cwd="/")
        return time.perf_counter() - begun

    once(f"import {who.imports}")
    pairs = [(once(f"import {who.imports}"), once("pass")) for _ in range(IMPORTS)]
    return median(with_it - without for with_it, without in pairs) * 1000


def stored_bytes(seat: Seat, compact: bool = True) -> int:
    """The size of the store, indexes included; compacted first, so that only what is kept counts."""
    if seat.who.store == "sqlite":
        import sqlite3

        connection = sqlite3.connect(seat.file, isolation_level=None, timeout=30)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if compact:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        return os.path.getsize(seat.file)
    if compact:
        seat.cluster.run(seat.name, "VACUUM FULL")
    size = (
        "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema')"
    )
    return int(seat.cluster.fetch(seat.name, size)[0][0])
