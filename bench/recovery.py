"""W7: of two workers with many slow processes the busier one gets SIGKILL: when it is noticed, what is lost."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Any

from bench.database import family
from bench.seat import Seat, end_group

KILL_AT = 0.3  # of all effects
STEPS = 5
PAUSE_SECONDS = 0.3
PATIENCE_SECONDS = {"absurd": 150.0}  # its claim timeout is 120 s
DEFAULT_PATIENCE_SECONDS = 30.0
RESULT_SECONDS = 10.0
GRACE_SECONDS = 2.0

Effect = tuple[int, int, int, float]  # worker, process, step, when


def measure(seat: Seat, n: int) -> dict[str, Any]:
    """The same load twice, without and with the kill; the difference is what the kill cost."""
    calm = _pass(seat, n, kill=False)
    return {"calm_s": calm["seconds"], **_pass(seat, n, kill=True)}


def measure_fresh(seat: Seat, n: int) -> dict[str, Any]:
    """The load with the kill, where both workers have only just started; the figures have names of their own."""
    answer = _pass(seat, n, kill=True, grace=0.0)
    named = {f"fresh_{key}": answer.get(key) for key in ("after_kill_s", "seen_s", "missing", "repeated_most")}
    return named | {"fresh_unfinished": n - answer["finished"]}


def _pass(seat: Seat, n: int, kill: bool, grace: float = GRACE_SECONDS) -> dict[str, Any]:
    patience = PATIENCE_SECONDS.get(seat.who.name, DEFAULT_PATIENCE_SECONDS)
    log = os.path.join(seat.scratch, "effects.log")
    if os.path.exists(log):
        os.unlink(log)
    before = seat.run("outcome")["finished"]
    workers = [seat.worker(), seat.worker()]
    time.sleep(grace)  # by default both have beaten at least once, as workers in service have
    begun = time.monotonic()
    submitted = seat.run("submit", n=n, steps=STEPS, pause=PAUSE_SECONDS)
    answer: dict[str, Any] = {"submit_s": submitted.get("submit_s", 0.0), "n": n}
    killed: set[int] = set()
    killed_at = 0.0
    if kill:
        _until(log, KILL_AT * n * STEPS, begun + patience)
        busiest = Counter(effect[0] for effect in _effects(log)).most_common(1)[0][0]
        victim = next(one for one in workers if busiest in family(one.pid))
        killed = set(family(victim.pid))
        killed_at = time.monotonic()
        end_group(victim)
    _until(log, n * STEPS, (killed_at or begun) + patience, distinct=True)
    answer |= verdict(_effects(log), n, begun, killed, killed_at)
    answer["finished"] = _finished(seat, before, n)
    for one in workers:
        end_group(one)
    return answer


def _until(log: str, wanted: float, end: float, distinct: bool = False) -> None:
    while time.monotonic() < end:
        effects = _effects(log)
        if (len({effect[1:3] for effect in effects}) if distinct else len(effects)) >= wanted:
            return
        time.sleep(0.02)


def _effects(log: str) -> list[Effect]:
    try:
        with open(log) as file:
            parts = [line.split() for line in file]
    except OSError:
        return []
    return [(int(part[0]), int(part[1]), int(part[2]), float(part[3])) for part in parts if len(part) == 4]


def verdict(effects: list[Effect], n: int, begun: float, killed: set[int], killed_at: float) -> dict[str, Any]:
    """What the log of effects says; effects are counted once for each (process, step)."""
    first: dict[tuple[int, int], float] = {}
    for _, process, step, when in effects:
        first.setdefault((process, step), when)
    last = max(first.values(), default=begun)
    answer: dict[str, Any] = {
        "seconds": last + PAUSE_SECONDS - begun,
        "effects": len(first),
        "missing": n * STEPS - len(first),
        "repeated": len(effects) - len(first),
        "repeated_most": max(_repeats(effects).values(), default=0),
    }
    if killed:
        held = {process for worker, process, _, _ in effects if worker in killed}
        taken = [
            when
            for worker, process, _, when in effects
            if worker not in killed and process in held and when > killed_at
        ]
        answer |= {
            "after_kill_s": last + PAUSE_SECONDS - killed_at,
            "seen_s": min(taken) - killed_at if taken else None,
            "held_by_killed": len(held),
        }
    return answer


def _repeats(effects: list[Effect]) -> Counter[int]:
    """How many effects of each process were made more than once."""
    made = Counter((process, step) for _, process, step, _ in effects)
    repeats: Counter[int] = Counter()
    for (process, _), times in made.items():
        repeats[process] += times - 1
    return repeats


def _finished(seat: Seat, before: int, n: int) -> int:
    """How many processes have a recorded result, given a little time after the last effect."""
    end = time.monotonic() + RESULT_SECONDS
    while True:
        finished = int(seat.run("outcome")["finished"]) - before
        if finished >= n or time.monotonic() > end:
            return finished
        time.sleep(0.2)
