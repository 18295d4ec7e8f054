"""Fuzz every parser and codec: ``python -m tests.fuzz SECONDS=60 ONLY=url SEED=1``, seconds for each entry.

With atheris installed (``pip install 'perdure[fuzz]'``) the lines that were reached lead it on; without, examples are
changed at random. The first find of an entry is told, cut as short as it goes, and ends that entry; the exit code is 1.
"""

from __future__ import annotations

import importlib.util
import sys
import time

from tests.fuzz import atheris_run
from tests.fuzz.entries import ENTRIES
from tests.fuzz.mutation import Find, hunt


def main(words: list[str]) -> int:
    """Hunt in each entry for its time; 1 if anything was found."""
    given = dict(word.split("=", 1) for word in words)
    seconds, only = float(given.get("SECONDS") or 10), given.get("ONLY") or ""
    seed = int(given.get("SEED") or time.time())
    guided = importlib.util.find_spec("atheris") is not None and given.get("PLAIN") is None
    print(f"{'atheris leads' if guided else 'examples are changed at random'}; SEED={seed}", flush=True)
    fed = finds = 0
    for entry in ENTRIES:
        if only not in entry.name:
            continue
        if guided:
            count, found = atheris_run.in_its_own_process(entry, seconds, seed)
        else:
            end = time.monotonic() + seconds
            count, found = 0, ""
            try:
                count = hunt(entry, seed, lambda fed, end=end: time.monotonic() < end)
            except Find as find:
                found = str(find)
        fed += count
        finds += bool(found)
        print(f"{entry.name:>14}  {count:>12,} fed  {found}", flush=True)
    print(f"{fed:,} inputs fed, {finds} finds")
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
