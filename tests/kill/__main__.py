"""Workers killed at every point that the tests here know, then killed and stopped by the hundreds: ``make kill``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from perdure.testing.postgres import Server
from tests.kill.storm import LANES, kills, stops

PORTION = 100


def at_every_point() -> int:
    """Run the tests of this folder in their long form, on both stores; pytest's exit code."""
    command = [sys.executable, "-m", "pytest", "--quiet", str(Path(__file__).parent)]
    return subprocess.run(command, env={**os.environ, "PERDURE_KILL": "all"}, check=False).returncode


def told(text: str) -> None:
    """Say how far it is."""
    print(text, file=sys.stderr)


async def on_both(asked: argparse.Namespace, server: Server, folder: Path) -> None:
    """In turn on SQLite and PostgreSQL, each portion on databases of its own and judged by itself."""
    for number, (count, work) in enumerate(portions(asked)):
        where = folder / str(number)
        where.mkdir()
        on_file = number % 2 == 0
        urls = [f"sqlite:///{where}/{lane}.db" if on_file else server.fresh_database() for lane in range(LANES)]
        found = await kills(urls[0], where, count, asked.seed + number, told) if work is kills else None
        found = found or await stops(urls, where, count, told)
        print(f"{'SQLite' if on_file else 'PostgreSQL'}: {found}", flush=True)


def portions(asked: argparse.Namespace) -> Iterator[tuple[int, object]]:
    """How many of what each portion has; two and two alike, one for each store."""
    for wanted, work in ((asked.stops, stops), (asked.kills, kills)):
        while wanted > 0:
            portion = min(PORTION, wanted)
            yield from ((portion // 2, work), (portion - portion // 2, work))
            wanted -= portion


def main() -> None:
    """Read what is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--stops", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--points", action=argparse.BooleanOptionalAction, default=True)
    asked = parser.parse_args()
    if asked.points and (code := at_every_point()):
        sys.exit(code)
    logging.getLogger("perdure").setLevel(logging.ERROR)
    with Server() as server, tempfile.TemporaryDirectory(prefix="perdure-kill-") as folder:
        asyncio.run(on_both(asked, server, Path(folder)))


if __name__ == "__main__":
    main()
