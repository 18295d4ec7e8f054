"""A program that wants to lead and writes down what it does: killed, stopped and cut off as an OS process of its own.

Arguments: the URL, the lease in seconds, and the path of the ledger.
"""

from __future__ import annotations

import asyncio
import os
import sys

from perdure.engine import Engine
from perdure.errors import LeadershipLost


async def main(url: str, lease: float, ledger: str) -> None:
    """Lead whenever nobody else does."""
    with open(ledger, "a", buffering=1) as book:
        async with Engine(url, migrate=True) as engine:
            print("ready", flush=True)
            while True:
                term = 0
                try:
                    async with engine.leader("import", lease=lease) as lead:
                        term = lead.term
                        print(f"leads {term}", flush=True)
                        while True:
                            lead.check()
                            book.write(f"{lead.term} {os.getpid()}\n")
                            await asyncio.sleep(0.01)
                except LeadershipLost:
                    if term:  # else it was lost before the block began
                        print(f"lost {term}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), sys.argv[3]))
