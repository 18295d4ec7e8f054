"""W17: the same work by one engine and by two at a time on one database, each a client and a worker in one."""

from __future__ import annotations

import os
import time
from typing import Any

from bench.seat import Seat

LEAD_SECONDS = 4.0  # an engine is open, and warm, by then
ENGINES = (1, 2)


def measure(seat: Seat, n: int) -> dict[str, Any]:
    """Rates, and processor time of engines and server for each process, of n processes in all; ratios of two to one."""
    answer: dict[str, Any] = {}
    seat.prepare()
    for name, steps, whole in (("one_step", 1, n), ("ten_steps", 10, n // 5)):
        rates = []
        for engines in ENGINES:
            found = _together(seat, engines, whole // engines, steps)
            rates.append(found["per_s"])
            answer |= {f"{name}_{key}_{engines}": value for key, value in found.items()}
        answer[f"{name}_ratio"] = rates[1] / rates[0]
        used_ms = answer[f"{name}_cpu_ms_2"] + answer[f"{name}_server_cpu_ms_2"]
        answer[f"{name}_busy_percent"] = used_ms * rates[1] / steps / (os.cpu_count() or 1) / 10
    return answer


def _together(seat: Seat, engines: int, each: int, steps: int) -> dict[str, float]:
    """So many engines begin at one instant, each with as many processes of its own."""
    begin = time.time() + LEAD_SECONDS
    server = seat.cluster.cpu_seconds()
    started = [seat.spawn("w17", n=each, steps=steps, begin=begin) for _ in range(engines)]
    answers = [seat.answer(one, "w17", 180.0) for one in started]
    processes = engines * each
    seconds = max(answer["ended"] for answer in answers) - begin
    return {
        "per_s": processes * steps / seconds,
        "cpu_ms": sum(answer["cpu_s"] for answer in answers) * 1000 / processes,
        "server_cpu_ms": (seat.cluster.cpu_seconds() - server) * 1000 / processes,
    }
