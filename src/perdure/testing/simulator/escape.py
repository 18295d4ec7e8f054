"""The way out is closed: while a history runs, the real clock, chance, sleeping and threads end it as a failure."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from perdure.testing.clock import NOON
from perdure.testing.simulator.violation import Escape
from perdure.turns.current import current_turn

if TYPE_CHECKING:
    from perdure.testing.simulator.loop import SimLoop

_CLOCK = "Await asyncio.sleep(), and ask asyncio.get_running_loop().time(): in a history they are virtual."
_CHANCE = "Draw from the cluster (cluster.draw, cluster.chance, cluster.pick), or from a Random with a seed."
_OUTSIDE = "Simulate steps that are not hard, and hand in what they would reach outside."

_CLOSED: dict[Any, tuple[str, tuple[str, ...]]] = {
    time: (
        _CLOCK,
        (
            "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time",
            "process_time_ns", "thread_time", "sleep", "clock_gettime", "clock_gettime_ns",
        ),
    ),
    random: (
        _CHANCE,
        (
            "random", "randint", "randrange", "choice", "choices", "shuffle", "sample", "uniform", "gauss",
            "getrandbits", "randbytes", "expovariate", "normalvariate", "triangular", "betavariate",
        ),
    ),
    os: (_CHANCE, ("urandom", "getrandom")),
    uuid: (_CHANCE, ("uuid1", "uuid4")),
    threading: (_OUTSIDE, ("_start_new_thread", "_start_joinable_thread")),
    subprocess: (_OUTSIDE, ("Popen",)),
}  # fmt: skip


@contextmanager
def closed(loop: SimLoop) -> Iterator[None]:
    """While inside, whatever would leave the simulation ends the history; workflow code is answered by its turn."""
    before: list[tuple[Any, str, Any]] = []
    for module, (advice, names) in _CLOSED.items():
        for name in names:
            real = getattr(module, name, None)
            if real is not None:
                before.append((module, name, real))
                setattr(module, name, _closed(loop, f"{module.__name__}.{name}", real, advice))
    real_time = vars(logging)["time"]
    vars(logging)["time"] = _log_time(loop)
    try:
        yield
    finally:
        vars(logging)["time"] = real_time
        for module, name, real in before:
            setattr(module, name, real)


def _closed(loop: SimLoop, name: str, real: Any, advice: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        if current_turn() is not None:
            return real(*args, **kwargs)  # the wall around a turn answers from the turn itself
        error = Escape(f"{name}() was called in {loop.current().name}. {advice}")
        loop.fail(error)
        raise error

    return refuse


def _log_time(loop: SimLoop) -> SimpleNamespace:
    """What ``logging`` needs of ``time``: its records carry virtual time."""

    def nanoseconds() -> int:
        return NOON * 1000 + int(loop.now * 1_000_000_000)

    return SimpleNamespace(
        time=lambda: nanoseconds() / 1_000_000_000,
        time_ns=nanoseconds,
        strftime=time.strftime,
        localtime=time.localtime,
        gmtime=time.gmtime,
    )
