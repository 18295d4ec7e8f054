"""Customers search with patterns of their own, some of which would never end: hard steps keep the worker alive.

Run it with ``python -m examples.patterns``. It needs nothing but a folder for its database.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile

from perdure import Engine, Retry, StepError, step, workflow
from perdure.errors import StepTimeout

TEXT = "a" * 40 + "!"
PATTERNS = ("a+", "[!?]", "(a+)+$", "(a|a)*$", "a{3}")
"""The third and the fourth try every way to cut forty letters into pieces."""


@step(hard=True, timeout=1.0, memory="512MiB", retry=Retry(attempts=2, first=0.01, never=TimeoutError))
def find(pattern: str, text: str) -> list[str]:
    """Search, in C and with the interpreter's lock held: no thread could be stopped in there."""
    return [found[0] for found in re.finditer(pattern, text)]


@workflow
async def search(pattern: str, text: str) -> str:
    """Answer a customer, whatever the pattern does."""
    try:
        found = await find(pattern, text)
    except StepTimeout:
        return "takes too long"
    except StepError as error:
        return f"cannot be searched for: {error.type}"
    return f"{len(found)} found"


async def serve(url: str) -> None:
    """Search for all patterns at once, and tell what became of each."""
    async with Engine(url, work=True, workflows=[search]) as engine:
        handles = [await engine.start(search, pattern, TEXT) for pattern in PATTERNS]
        for pattern, handle in zip(PATTERNS, handles, strict=True):
            print(f"{pattern:<10}{await handle.result(60)}")
        print(f"cells killed: {engine.metrics()['cells_killed']:g}")


def main() -> None:
    """Serve, on the database of the command line or on one for this time only."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(serve(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/perdure.db"))


if __name__ == "__main__":
    main()
