"""W17: the same work by one engine and by two at a time on one database, each a client and a worker in one.

Each is measured on a database of its own: what was done before would cost the next one its vacuum.
"""

from __future__ import annotations

import os
import time
from typing import Any

from bench.contestant import Contestant
from bench.database import Cluster
from bench.ours_machines import MACHINES
from bench.seat import Seat

LEAD_SECONDS = 4.0  # an engine is open, and warm, by then
ENGINES = (1, 2)


def measure(who: Contestant, cluster: Cluster, n: int) -> dict[str, Any]:
    """Rates, and processor time of engines and server for each process or call, of n in all; ratios of two to one."""
    answer: dict[str, Any] = {}
    for name, steps, whole in (("one_step", 1, n), ("ten_steps", 10, n // 5), ("calls", 1, n)):
        rates = []
        for engines in ENGINES:
            with Seat(who, cluster) as seat:
                seat.prepare()
                found = _together(seat, name, engines, whole // engines, steps)
            rates.append(found["per_s"])
            answer |= {f"{name}_{key}_{engines}": value for key, value in found.items()}
        answer[f"{name}_ratio"] = rates[1] / rates[0]
        used_ms = answer[f"{name}_cpu_ms_2"] + answer[f"{name}_server_cpu_ms_2"]
        answer[f"{name}_busy_percent"] = used_ms * rates[1] / steps / (os.cpu_count() or 1) / 10
    return answer


def _together(seat: Seat, name: str, engines: int, each: int, steps: int) -> dict[str, float]:
    """So many engines begin at one instant, each with as many processes of its own, or calls to machines of its own."""
    begin = time.time() + LEAD_SECONDS
    server = seat.cluster.cpu_seconds()
    if name == "calls":
        role, asked = "w17_calls", {"in_flight": MACHINES // engines}
    else:
        role, asked = "w17", {"steps": steps}
    started = [seat.spawn(role, n=each, begin=begin, **asked) for _ in range(engines)]
    answers = [seat.answer(one, role, 180.0) for one in started]
    done = engines * each
    seconds = max(answer["ended"] for answer in answers) - begin
    return {
        "per_s": done * steps / seconds,
        "cpu_ms": sum(answer["cpu_s"] for answer in answers) * 1000 / done,
        "server_cpu_ms": (seat.cluster.cpu_seconds() - server) * 1000 / done,
    }
