"""A program that says what Perdure changes in it: when it is imported, by a client, by a worker, and afterwards."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import importlib
import json
import locale
import logging
import os
import resource
import signal
import sys
import threading
import warnings
from typing import Any

MODULES = (
    "asyncio", "asyncio.events", "asyncio.tasks", "builtins", "codecs", "concurrent.futures", "contextvars", "copyreg",
    "datetime", "io", "json", "logging", "multiprocessing", "os", "pickle", "queue", "random", "secrets", "select",
    "selectors", "signal", "socket", "sqlite3", "ssl", "subprocess", "sys", "threading", "time", "traceback", "uuid",
    "warnings", "zoneinfo",
)  # fmt: skip
CLASSES = (
    "asyncio.Barrier", "asyncio.BoundedSemaphore", "asyncio.Condition", "asyncio.Event", "asyncio.Future",
    "asyncio.Lock", "asyncio.Queue", "asyncio.Semaphore", "asyncio.Task", "asyncio.TaskGroup", "asyncio.Timeout",
    "logging.Logger", "random.Random", "random.SystemRandom", "threading.Lock", "threading.Thread",
)  # fmt: skip
SUBJECTS = ("worker", "process", "step", "recovery", "store", "quarantine")
RESOURCES = [name for name in dir(resource) if name.startswith("RLIMIT_")]


def attributes() -> dict[str, int]:
    """Every name of these modules and classes, and which object it means; modules that are imported later are none."""
    found = {}
    for name in MODULES:
        for key, value in vars(importlib.import_module(name)).items():
            if not key.startswith("__") and type(value).__name__ != "module":
                found[f"{name}.{key}"] = id(value)
    for name in CLASSES:
        module, _, kind = name.rpartition(".")
        holder = getattr(importlib.import_module(module), kind)
        if isinstance(holder, type):
            found |= {f"{name}.{key}": id(value) for key, value in vars(holder).items() if callable(value)}
    return found


LEFT_OUT = gc.get_freeze_count()
"""Python 3.12 leaves out some hundred objects of its own at its start."""


def settings() -> dict[str, Any]:
    """What else belongs to the whole OS process."""
    umask = os.umask(0o22)
    os.umask(umask)
    return {
        "the collector's threshold": gc.get_threshold(),
        "what the collector leaves out": gc.get_freeze_count() > LEFT_OUT,
        "the collector is on": gc.isenabled(),
        "the switch interval": sys.getswitchinterval(),
        "the recursion limit": sys.getrecursionlimit(),
        "hooks": [repr(hook) for hook in (sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook)],
        "hooks of generators": repr(sys.get_asyncgen_hooks()),
        "tracing": repr((sys.gettrace(), sys.getprofile())),
        "handlers of signals": [_reaction(one) for one in signal.valid_signals()],
        "the root logger": repr(
            (logging.root.handlers, logging.root.filters, logging.root.level, logging.root.disabled)
        ),
        "the loggers below perdure": [_shown(name) for name in ("perdure", *map("perdure.{}".format, SUBJECTS))],
        "classes of logging": repr((logging.getLoggerClass(), logging.getLogRecordFactory())),
        "warnings": repr(warnings.filters),
        "the environment": dict(os.environ),
        "the folder": os.getcwd(),
        "the mask of new files": umask,
        "the path of imports": [list(map(str, sys.path)), repr(sys.meta_path)],
        "faults": faulthandler.is_enabled(),
        "limits of resources": [resource.getrlimit(getattr(resource, one)) for one in RESOURCES],
        "the locale": locale.setlocale(locale.LC_ALL),
        "the policy of event loops": type(asyncio.get_event_loop_policy()).__name__,
        "threads": sorted(thread.name for thread in threading.enumerate()),
    }


def _shown(name: str) -> str:
    """What somebody may have set for a logger."""
    one = logging.getLogger(name)
    return repr((one.handlers, [type(filter).__name__ for filter in one.filters], one.level, one.propagate))


def changed(before: tuple[dict[str, int], dict[str, Any]]) -> list[str]:
    """What means another object, or is set otherwise, than before."""
    names, values = attributes(), settings()
    new = sorted(name for name, value in names.items() if before[0].get(name, value) != value)
    return new + sorted(name for name, value in values.items() if before[1][name] != value)


def _reaction(one: signal.Signals) -> int:
    reaction = signal.getsignal(one)
    return int(reaction) if isinstance(reaction, int) else id(reaction)


async def main() -> None:
    """Say at each stage what is changed, as JSON."""
    for driver in ("asyncpg", "msgspec"):
        importlib.import_module(driver)
    attributes()
    before = attributes(), settings()
    stages = {}

    from perdure import Engine, step, workflow

    stages["imported"] = changed(before)

    @step
    async def pay(cents: int) -> int:
        return cents

    @workflow
    async def order(cents: int) -> int:
        return await pay(cents)

    async def use(*, work: bool) -> list[str]:
        async with Engine("sqlite://:memory:", work=work, workflows=[order]) as engine:
            handle = await engine.start(order, 1299)
            if work:
                await handle.result(30)
            return changed(before)

    stages["client"] = await use(work=False)
    stages["client closed"] = changed(before)
    stages["worker"] = await use(work=True)
    stages["worker closed"] = changed(before)
    print(json.dumps(stages))


if __name__ == "__main__":
    asyncio.run(main())
