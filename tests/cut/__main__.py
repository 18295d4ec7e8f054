"""Thousands of connections cut around their COMMIT, and what became of each: ``make cut``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys

from perdure.testing.postgres import Server
from tests.cut.session import session


def main() -> None:
    """Cut as often as asked, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    logging.getLogger("perdure").setLevel(logging.ERROR)  # it tells of every lost connection
    with Server(("fsync=off",)) as server:  # connections are cut here, no machine
        tally = asyncio.run(session(server, asked.cuts, asked.seed, lambda text: print(text, file=sys.stderr)))
    print(tally)


if __name__ == "__main__":
    main()
