"""W22: many failed processes are found, tried, commanded by one operation and verified; a worker is killed half way."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from bench import backlog
from bench.seat import Seat, end_group

SECONDS = 1_800.0
QUIET_SECONDS = 5.0


def measure(seat: Seat, n: int) -> dict[str, Any]:
    """Clone them from one real failure, then do all that an operator does, with other processes started meanwhile."""
    backlog.fill(seat, backlog.WAITING, seat.run("seed_failed")["failed"], n - 1)
    answer = seat.run("w22_look", SECONDS, n=n)
    quiet = seat.run("w22_starts", SECONDS, lead=QUIET_SECONDS)
    under_way = Path(seat.scratch) / "under way"
    under_way.touch()
    intake = seat.spawn("w22_starts", lead=0.0)
    server = seat.cluster.cpu_seconds() if seat.name else 0.0
    commanded = seat.run("w22", SECONDS, n=n, variant="retry")
    server = (seat.cluster.cpu_seconds() - server) * 1000 / n if seat.name else 0.0
    under_way.unlink()
    busy = seat.answer(intake, "w22_starts", SECONDS)
    assert commanded["done"] == n, commanded
    answer |= {
        "commands_per_s": commanded["commands_per_s"],
        "cpu_ms_each": commanded["cpu_ms_each"],
        "server_cpu_ms": server,
        "peak_rss_mib": commanded["peak_rss_mib"],
        "quiet_p99_ms": quiet["p99_ms"],
        "p99_ms": busy["p99_ms"],
        "p99_ratio": busy["p99_ms"] / quiet["p99_ms"],
    }
    answer |= _killed(seat, n)
    return answer | seat.run("w22_verify", SECONDS, n=n)


def _killed(seat: Seat, n: int) -> dict[str, Any]:
    """All are held, and the worker of the operation is killed half way; another one goes on. Then they are resumed."""
    watching = seat.spawn("w22_half", n=n)  # first, else a short operation might be over before it is watched
    victim = seat.spawn("w22", n=n, variant="hold")
    half = seat.answer(watching, "w22_half", SECONDS)
    os.killpg(victim.pid, signal.SIGKILL)
    victim.communicate()
    end_group(victim)
    seat.groups.remove(victim)
    held = seat.run("w22", SECONDS, n=n, variant="hold", old=half["id"])
    resumed = seat.run("w22", SECONDS, n=n, variant="resume")
    return {
        "before_kill": half["done"],
        "miscounted": abs(n - held["done"]) + held["left_out"],
        "not_resumed": n - resumed["done"],
    }
