"""Workers killed and stopped by the hundreds on both stores, in numbers: ``make kill``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from pathlib import Path

from perdure.testing.postgres import Server
from tests.kill.storm import LANES, kills, stops


def told(text: str) -> None:
    """Say how far it is."""
    print(text, file=sys.stderr)


async def on_both(asked: argparse.Namespace, server: Server, folder: Path) -> None:
    """Half of all on SQLite, half on PostgreSQL."""
    for number, store in enumerate(("SQLite", "SQLite", "PostgreSQL", "PostgreSQL")):
        where = folder / str(number)
        where.mkdir()
        files = [f"sqlite:///{where}/perdure{lane}.db" for lane in range(LANES)]
        urls = files if store == "SQLite" else [server.fresh_database() for _ in range(LANES)]
        if number % 2 == 0 and asked.kills:
            print(f"{store}: {await kills(urls[0], where, asked.kills // 2, asked.seed, told)}", flush=True)
        elif number % 2 and asked.stops:
            print(f"{store}: {await stops(urls, where, asked.stops // 2, told)}", flush=True)


def main() -> None:
    """Read how many are wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--stops", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    logging.getLogger("perdure").setLevel(logging.ERROR)
    with Server() as server, tempfile.TemporaryDirectory(prefix="perdure-kill-") as folder:
        asyncio.run(on_both(asked, server, Path(folder)))


if __name__ == "__main__":
    main()
