"""Every call to the store of five scenarios, with a blow before and after: ``python -m tests.simulator.enumeration``.

Words: ``ONLY=purchase`` plays one plot, ``PAIRS=no`` leaves the pairs out, ``CORES=2`` says how many passages run at
once. ``ONLY=purchase AT=worker-1:17:after`` repeats one passage (several blows are separated by commas) and tells it as
a timeline. The answer is 1 if a law was broken or an outcome was not the exact one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.simulator.enumeration.passage import played
from tests.simulator.enumeration.plots import PLOTS
from tests.simulator.enumeration.point import Point
from tests.simulator.enumeration.tour import explored

FEW = 20
"""Failures that are told; of more there is no need."""


def main(words: Sequence[str]) -> int:
    """Do what the command line says."""
    options = dict(word.split("=", 1) for word in words if "=" in word)
    only = options.get("ONLY") or ""
    if only not in ("", *PLOTS) or (options.get("AT") and not only):
        print(f"ONLY= takes one of {', '.join(PLOTS)}, and AT= needs it")
        return 2
    if options.get("AT"):
        return _one(only, options["AT"])
    failed = 0
    print("| scenario | calls to the store | points | pairs | seconds | latest at rest | broke a law |", flush=True)
    print("|---|---|---|---|---|---|---|")
    with ProcessPoolExecutor(int(options.get("CORES") or 2), mp_context=get_context("spawn")) as pool:
        for name in [only] if only else PLOTS:
            tally = explored(PLOTS[name], pool, pairs=options.get("PAIRS") != "no")
            failed += len(tally.failed)
            calls = ", ".join(f"{times} of the {role}" for role, times in sorted(tally.calls.items()))
            print(
                f"| {name} | {tally.calls.total()}: {calls} | {tally.points:,} | {tally.pairs:,} | {tally.took:,.0f} "
                f"| {tally.latest:.1f} | {len(tally.failed)} |",
                flush=True,
            )
            for one in tally.failed[:FEW]:
                print(f"{one.law}: {one.text:.300}\nrepeat it: {one.command(name)}", flush=True)
    return int(failed > 0)


def _one(name: str, at: str) -> int:
    passage = played(PLOTS[name], [Point.read(text) for text in at.split(",")])
    print(passage.history.timeline())
    return int(passage.history.violation is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
