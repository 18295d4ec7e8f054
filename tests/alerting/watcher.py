"""A program that evaluates the alert rules of a database once: ``python -m tests.alerting.watcher URL``."""

from __future__ import annotations

import asyncio
import sys

from perdure import Engine


async def main(url: str) -> None:
    """Look at the rules that are due, and tell what is new."""
    async with Engine(url) as engine:
        await engine.alerts.look()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
