"""The end of the main thread: the steps under way get their time then, while Python's executors still work.

Python shuts them down when the main thread ends, before it calls the functions of ``atexit``. From then on every use of
one raises RuntimeError in a step.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401 (it must be known to Python before us, who are then called before it)
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from perdure.logs import logger

if TYPE_CHECKING:
    from perdure.runtime.instance import Instance
    from perdure.runtime.worker import Worker

log = logger("worker")

LOOK_SECONDS = 0.01


class MainThreadEnd:
    """Calls what it was given, the latest first, when the main thread ends."""

    def __init__(self) -> None:
        self._finishing: list[Callable[[], None]] = []
        self._known = False

    def add(self, finish: Callable[[], None]) -> None:
        """Have this called; it is not where Python offers no such call, or the main thread has ended."""
        if not self._known:
            self._known = True
            with suppress(AttributeError, RuntimeError):
                threading._register_atexit(self._reached)  # type: ignore[attr-defined]
        self._finishing.append(finish)

    def remove(self, finish: Callable[[], None]) -> None:
        """Have it not called."""
        with suppress(ValueError):
            self._finishing.remove(finish)

    def _reached(self) -> None:
        """The main thread ends. This raises nothing: Python would leave its executors and threads as they are."""
        for finish in reversed(list(self._finishing)):
            try:
                finish()
            except KeyboardInterrupt:
                pass  # who presses Ctrl-C waits no longer
            except Exception:
                log.exception("steps under way at the end of the program were not waited for; please report it")


main_thread_end = MainThreadEnd()
"""The only one in this program."""


async def let_finish(worker: Worker, seconds: float) -> float:
    """Wait for up to so many seconds until no step is under way or about to begin; the answer is what is left of them.

    The worker goes on as before: other threads may still use its engine.
    """
    until = worker.machine.monotonic() + seconds
    while (left := until - worker.machine.monotonic()) > 0:
        if not any(map(_at_work, worker.scheduler.instances.values())):
            return left
        await asyncio.sleep(LOOK_SECONDS)
    return 0.0


def _at_work(instance: Instance) -> bool:
    return bool(instance.steps.in_flight or instance.inputs or instance.events or instance.commit is not None)
