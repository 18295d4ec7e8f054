"""A program that is killed in a run of retention, between the archive and the removal: ``python -m … URL FOLDER``."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from perdure import Engine, RetentionRule, limits
from perdure.clock import Computer
from perdure.store.url import store_for
from perdure.testing.faults import FaultyStore


async def main(url: str, folder: str) -> None:
    limits.RETENTION_SETTLED_SECONDS = 0.0
    store = FaultyStore(store_for(url, Computer()))

    async def killed(name: str, argument: object) -> None:
        if name == "prune":
            os.kill(os.getpid(), signal.SIGKILL)

    store.before = killed
    async with Engine(url, store=store, retention=[RetentionRule(after=0, archive=folder)]) as engine:
        await engine.retention.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
