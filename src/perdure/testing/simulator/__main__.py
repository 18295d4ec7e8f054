"""The command line of the simulator: run many histories of a scenario, or repeat one and shrink it.

::

    python -m perdure.testing.simulator MODULE:SCENARIO COUNT=1000 CORES=2     histories 0 to 999
    python -m perdure.testing.simulator MODULE:SCENARIO SEED=17                one, shrunk and told if it fails
    python -m perdure.testing.simulator MODULE:SCENARIO SEED=17 CHOICES=FILE   one that was recorded

FROM=n begins at another seed. SAVE=FILE writes the choices of the shrunk history, to be kept as a regression.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import json

from perdure.testing.simulator.campaign import Tally, explore, scenario_of
from perdure.testing.simulator.choice import Record
from perdure.testing.simulator.history import History, simulate
from perdure.testing.simulator.shrink import shrink


def main(words: Sequence[str]) -> int:
    """Do what the command line says; the answer is 1 if a law was broken."""
    options = dict(word.split("=", 1) for word in words if "=" in word)
    names = [word for word in words if "=" not in word]
    if len(names) != 1 or not {"SEED", "COUNT"} & options.keys():
        print(__doc__)
        return 2
    if "SEED" in options:
        return _one(names[0], int(options["SEED"]), options.get("CHOICES"), options.get("SAVE"))
    first = int(options.get("FROM", "0"))
    seeds = range(first, first + int(options["COUNT"]))
    tally = explore(names[0], seeds, cores=int(options.get("CORES", "1")), told=_progress)
    print()
    print(*tally.lines(), sep="\n")
    if tally.failed:
        print(f"repeat one: python -m perdure.testing.simulator {names[0]} SEED={tally.failed[0].seed}")
    return 1 if tally.failed else 0


def _progress(tally: Tally) -> None:
    print(f"\r{tally.histories:,} histories, {len(tally.failed)} broke a law", end="", file=sys.stderr, flush=True)


def _one(name: str, seed: int, recorded: str | None, save: str | None) -> int:
    scenario = scenario_of(name)

    def repeat(choices: Record | None, most: int | None = None) -> History:
        return simulate(scenario, seed, choices=choices, most=most)

    history = repeat(None if recorded is None else json.decode(Path(recorded).read_bytes(), type=dict[str, list[int]]))
    print(f"{history.digest()}: {history.decisions} decisions, {history.seconds:.1f} virtual seconds")
    if history.violation is None:
        print("no law was broken")
        return 0
    print(f"{history.violation}\nshrinking …", flush=True)
    smallest = shrink(history, repeat)
    print(smallest.timeline())
    if save is not None:
        Path(save).write_bytes(json.encode(smallest.choices))
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
