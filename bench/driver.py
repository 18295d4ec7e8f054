"""What every driver shares: it is told a role and a task, does it, and prints one line of JSON.

Drivers run in the peers' own environments, so this file uses the standard library only.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, cast

ANSWER = "ANSWER "
READY = "READY"


@dataclass
class Task:
    """What a driver is asked to do: where the database is, how many processes, how many steps in each."""

    url: str = ""
    n: int = 1000
    steps: int = 1
    in_flight: int = 2000
    scratch: str = "/tmp"
    variant: str = ""
    lead: float = 12.0  # seconds until the timers of W5 are due
    pause: float = 0.3  # seconds that a step of W7 takes
    histories: list[int] = field(default_factory=list)  # events of the processes that W15 and W19 wake
    begin: float = 0.0  # when the engines of W17 begin together, seconds since 1970
    worker: int = 0  # the OS process of the worker that W15 watches
    old: str = ""  # the machine of W20 that has a million calls behind it
    parent: int = 0  # the OS process that a worker must not outlive

    @property
    def effects(self) -> str:
        """The file in which the steps of W7 note what they did."""
        return os.path.join(self.scratch, "effects.log")


Role = Callable[[Task], "dict[str, Any] | Coroutine[Any, Any, dict[str, Any] | None] | None"]


def main(roles: dict[str, Role]) -> None:
    """Run the role named on the command line and print its answer."""
    role, asked = sys.argv[1], json.loads(sys.argv[2])
    known = {one.name for one in fields(Task)}
    task = Task(**{name: value for name, value in asked.items() if name in known})
    if task.parent:
        threading.Thread(target=_end_with, args=(task.parent,), daemon=True).start()
    answer = _run(roles[role], task)
    print(ANSWER + json.dumps(answer or {}), flush=True)
    sys.stderr.flush()
    os._exit(0)  # peers leave threads behind; all that was measured is printed


def _run(role: Role, task: Task) -> dict[str, Any] | None:
    """Run a role; with a file's path in BENCH_PROFILE, under cProfile, whose largest parts are written there."""
    place = os.environ.get("BENCH_PROFILE", "")
    profile = None
    if place:
        import cProfile

        profile = cProfile.Profile()
        profile.enable()
    answer = role(task)
    if inspect.iscoroutine(answer):
        answer = asyncio.run(answer)
    if profile is not None:
        import pstats

        profile.disable()
        with open(place, "a") as file:
            pstats.Stats(profile, stream=file).sort_stats("tottime").print_stats(40)
    return cast("dict[str, Any] | None", answer)


def _end_with(parent: int) -> None:
    """Leave when the OS process that started the contest is gone, so that nothing stays behind."""
    while True:
        time.sleep(1.0)
        try:
            os.kill(parent, 0)
        except OSError:
            os._exit(3)


def ready() -> None:
    """Tell the contest that this worker takes work now."""
    print(READY, flush=True)


class Stopwatch:
    """Measures wall time, CPU time of this OS process and its children, and the largest resident size."""

    def __init__(self) -> None:
        self.cpu = _cpu()
        self.begun = time.perf_counter()

    def rate(self, n: int, unit: str) -> dict[str, Any]:
        """The answer of a throughput workload: units per second, CPU per unit, seconds, largest RSS in MiB."""
        seconds = time.perf_counter() - self.begun
        return {
            f"{unit}_per_s": n / seconds,
            "seconds": seconds,
            "n": n,
            "cpu_ms_each": (_cpu() - self.cpu) * 1000 / n,
            "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }


def _cpu() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def spread(seconds: Sequence[float]) -> dict[str, Any]:
    """The answer of a latency workload: p50, p99 and largest, in milliseconds."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return {
        "p50_ms": ordered[last // 2] * 1000,
        "p99_ms": ordered[round(last * 0.99)] * 1000,
        "max_ms": ordered[last] * 1000,
        "n": len(ordered),
    }


def gaps(moments: Sequence[float]) -> list[float]:
    """The times between neighbouring moments, in their unit."""
    return [later - earlier for earlier, later in pairwise(moments)]


def note_effect(path: str, process: int, step: int) -> None:
    """Append one effect to the log, whole or not at all: which worker, process and step, and when."""
    line = f"{os.getpid()} {process} {step} {time.monotonic():.6f}\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def lags(due: float, wakes: Sequence[float], submitted: float, finished: float) -> dict[str, Any]:
    """The answer of W5, seconds against the due time: median and last wake, how many early, last result."""
    ordered = sorted(wake - due for wake in wakes)
    return {
        "median_lag_s": ordered[len(ordered) // 2],
        "last_wake_s": ordered[-1],
        "early": sum(1 for lag in ordered if lag < 0),
        "last_result_s": finished - due,
        "submit_s": submitted,
        "n": len(ordered),
    }
