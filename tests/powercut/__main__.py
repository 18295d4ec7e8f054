"""Thousands of power cuts under SQLite, and what was found after each: ``make powercut``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sqlite3
import sys

from tests.powercut.session import quick_folder, session


def main() -> None:
    """Cut as often as asked; exit with 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    logging.getLogger("perdure").setLevel(logging.ERROR)
    with quick_folder() as folder:
        told = session(asked.cuts, folder, asked.seed, lambda text: print(text, file=sys.stderr))
        tally = asyncio.run(told)
    print(f"SQLite {sqlite3.sqlite_version}, as Python uses it: {tally}")
    for lost in tally.lost[:10]:
        print(lost)
    sys.exit(bool(tally.lost))


if __name__ == "__main__":
    main()
