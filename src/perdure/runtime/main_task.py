"""The main task of a worker's OS process: it runs to its end, though code in some task may want to end the program."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

log = logging.getLogger("perdure")


def run(main: Coroutine[Any, Any, T], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """Run ``main`` on an event loop of its own until it has ended; Ctrl-C is for its own signal handlers.

    A task of a step that raises SystemExit or KeyboardInterrupt stops the event loop, as asyncio has it. The task has
    failed with it, so whoever awaits it is told; the worker goes on.
    """
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        loop = runner.get_loop()
        task = loop.create_task(main)
        while not task.done():
            try:
                loop.run_until_complete(task)
            except (KeyboardInterrupt, SystemExit) as error:
                if task.done() and not task.cancelled() and task.exception() is error:
                    raise
                log.error("code in a task raised %s, which does not end this worker", type(error).__name__)
        return task.result()
