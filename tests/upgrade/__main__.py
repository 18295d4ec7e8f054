"""Rolling upgrades from each release on both stores, in numbers: ``make rolling``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path

from perdure.testing.postgres import Server
from tests.upgrade.release import RELEASES
from tests.upgrade.rolling import rolled, source


def main() -> int:
    """Read how many are wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of old and new workers in turn, on each store")
    parser.add_argument("--count", type=int, default=10, help="processes of each of four kinds between two kills")
    asked = parser.parse_args()
    logging.getLogger("perdure").setLevel(logging.ERROR)
    worst = 0
    with Server() as server, tempfile.TemporaryDirectory(prefix="perdure-rolling-") as place:
        for release in RELEASES:
            old = source(release, Path(place) / release)
            if old is None:
                print("this clone has no history, from which the source of a release is taken: git fetch --unshallow")
                return 1
            for store, url in (("SQLite", f"sqlite:///{place}/{release}.db"), ("PostgreSQL", server.fresh_database())):
                began = time.monotonic()
                kills, count = asked.kills, asked.count
                processes, wrong = asyncio.run(rolled(url, old, Path(place), rounds=kills, count=count))
                took = time.monotonic() - began
                print(f"{store}, release {release!r}: {kills} kills, {processes} processes, {took:.0f} s", flush=True)
                print("\n".join(f"  wrong: {text}" for text in wrong) or "  each came to its right end", flush=True)
                worst = max(worst, len(wrong))
    return min(worst, 1)


if __name__ == "__main__":
    sys.exit(main())
