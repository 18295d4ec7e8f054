"""Restarts and failovers of PostgreSQL under load, in numbers: ``make failover``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.failover.load import PRODUCTIVE_SECONDS
from tests.failover.rounds import failovers, losses, restarts


async def all_rounds(asked: argparse.Namespace) -> None:
    """Run what was asked for, and print what was found."""
    asked_for = (
        (asked.restarts, partial(restarts, within=PRODUCTIVE_SECONDS)),
        (asked.failovers, partial(failovers, within=PRODUCTIVE_SECONDS)),
        (asked.losses, losses),
    )
    for rounds, work in asked_for:
        if rounds:
            with tempfile.TemporaryDirectory(prefix="perdure-failover-") as folder:
                print(await work(rounds, Path(folder), lambda text: print(text, file=sys.stderr)), flush=True)


def main() -> None:
    """Read how many rounds are wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--restarts", type=int, default=100)
    parser.add_argument("--failovers", type=int, default=30)
    parser.add_argument("--losses", type=int, default=10)
    logging.getLogger("perdure").setLevel(logging.ERROR)  # it tells of every lost connection
    asyncio.run(all_rounds(parser.parse_args()))


if __name__ == "__main__":
    main()
