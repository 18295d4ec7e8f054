"""Load on both stores, with real worker OS processes, in numbers: ``make load``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from perdure.testing.postgres import Server
from tests.load.hang import hung
from tests.load.herd import herd
from tests.load.kills import killed
from tests.load.loud import hot_process, poisoned
from tests.load.outage import outage
from tests.load.overdue import overdue
from tests.load.soak import soak
from tests.load.suspects import suspects
from tests.load.verdict import Verdict

SETTINGS = ("autovacuum_naptime=5", "max_wal_size=128MB", "min_wal_size=32MB", "checkpoint_timeout=30")
"""What a server does within a day happens within minutes."""

Load = Callable[[str, Path], Awaitable[Verdict]]


def loads(asked: argparse.Namespace) -> dict[str, Load]:
    """Every load by its name."""
    return {
        "kills": killed,
        "suspects": lambda url, folder: suspects(url, folder, asked.suspects),
        "poison": lambda url, folder: poisoned(url, folder, asked.healthy),
        "hang": lambda url, folder: hung(url, folder),
        "hot": lambda url, folder: hot_process(url, folder, messages=asked.messages),
        "called": lambda url, folder: hot_process(url, folder, calls=asked.messages),
        "outage": lambda url, folder: outage(url, folder, asked.down),
        "herd": lambda url, folder: herd(url, folder, 5, asked.herd // 5),
        "overdue": lambda url, folder: overdue(url, folder, asked.overdue, asked.lead),
        "soak": lambda url, folder: soak(url, folder, asked.minutes, asked.seed),
    }


async def on_both(asked: argparse.Namespace, server: Server) -> int:
    """Each load that was asked for, on each store; how many bounds did not hold."""
    broken = 0
    for name, load in loads(asked).items():
        if asked.only and name not in asked.only:
            continue
        for store in asked.stores:
            with tempfile.TemporaryDirectory(prefix="perdure-load-") as place:
                print(f"{name} on {store} …", file=sys.stderr)
                url = f"sqlite:///{place}/perdure.db" if store == "SQLite" else server.fresh_database()
                verdict = await load(url, Path(place))
                print(f"{store}, {verdict}", flush=True)
                broken += verdict.broken
    return broken


def main() -> int:
    """Read how much is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(loads(argparse.Namespace())), help="default: all")
    parser.add_argument("--stores", nargs="*", default=["SQLite", "PostgreSQL"], choices=["SQLite", "PostgreSQL"])
    parser.add_argument("--minutes", type=float, default=12.0, help="of the soak")
    parser.add_argument("--overdue", type=int, default=100_000)
    parser.add_argument("--lead", type=float, default=240.0, help="seconds in which they are started")
    parser.add_argument("--messages", type=int, default=10_000, help="or calls, to the hot process")
    parser.add_argument("--healthy", type=int, default=1_000)
    parser.add_argument("--suspects", type=int, default=2_000)
    parser.add_argument("--herd", type=int, default=50, help="workers that start at once")
    parser.add_argument("--down", type=float, default=60.0, help="seconds of the outage that are counted")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    logging.getLogger("perdure").setLevel(logging.ERROR)
    with Server(SETTINGS) as server:
        broken = asyncio.run(on_both(asked, server))
    if broken:
        print(f"{broken} bounds did not hold; on a machine with other work, run it again when it is quiet")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
