"""A program that forks with a blocking engine in hand: ``python -m tests.portal.forking CASE URL``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from perdure import BlockingEngine, PerdureError
from tests.portal import shop


def child(work: Callable[[], None]) -> None:
    """Do something in a child, which ends as a program does, and wait for it."""
    pid = os.fork()
    if pid == 0:
        work()
        sys.exit(0)
    _, status = os.waitpid(pid, 0)
    print("child:", os.waitstatus_to_exitcode(status), flush=True)


def before(url: str) -> None:
    """Open, then fork: the child is refused, and the parent goes on."""
    with BlockingEngine(url, work=True) as engine:
        handle = engine.start(shop.order, "A-1")

        def work() -> None:
            for call in (engine.open, engine.count, handle.result):
                try:
                    call()
                except PerdureError as error:
                    print(error, flush=True)
            engine.close()

        child(work)
        if os.getpid() == PARENT:
            handle.signal("paid", "Ann")
            print(handle.result(10), flush=True)


def after(url: str) -> None:
    """Fork, then call: each has an engine of its own."""
    engine = BlockingEngine(url, migrate=True)
    for name in ("A-1", "A-2"):
        child(lambda name=name: print(engine.start(shop.order.options(key=name), name).key, flush=True))  # type: ignore[misc]
    engine.start(shop.order, "A-3")
    print(engine.count(), flush=True)


PARENT = os.getpid()

if __name__ == "__main__":
    {"before": before, "after": after}[sys.argv[1]](sys.argv[2])
