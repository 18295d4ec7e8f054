"""How many instructions a process costs at another commit and at this one: a count that other work cannot disturb.

Ratios of rates differ by several percent from one hour to the next on a shared machine; the instructions that the
interpreter executes for a process do not. What waits, what the caches and the server do, it cannot see: read it beside
``compare``.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench import contestant
from bench.compare import OURS, at_source, required
from bench.contestant import Contestant
from bench.database import Cluster
from bench.seat import Seat

COUNTED = {"w1": 1, "w2": 10}  # workload: the steps of a process
FEW, MANY = 100, 500  # processes; what both runs have in common, start and imports, is no part of the difference
SECONDS = 900.0  # for a run, which Valgrind makes some fifty times slower
COUNT = re.compile(r"I +refs: +([\d,]+)")


def compare(commit: str, names: Sequence[str]) -> None:
    """Count both commits on both stores, and print the instructions of a process, with their ratio."""
    if shutil.which("valgrind") is None:
        raise SystemExit("the count is made by Valgrind: apt-get install valgrind")
    with tempfile.TemporaryDirectory(prefix="perdure-instructions-") as folder, Cluster() as cluster:
        source = required(commit, Path(folder))
        print(f"| instructions of a process, thousands | {commit} | now | now × {commit} |\n|---|---|---|---|")
        for name in names or COUNTED:
            for now in map(contestant.ALL.__getitem__, OURS):
                then, today = (_each(name, who, cluster) for who in (at_source(now, source), now))
                print(row(name, now.title, then, today), flush=True)


def row(name: str, title: str, then: float, now: float) -> str:
    """What both commits cost, and the ratio."""
    return f"| {name} {title} | {then / 1000:,.0f} | {now / 1000:,.0f} | {now / then:.3f} |"


def counted(report: str) -> int:
    """The instructions that a report of Valgrind's names."""
    found = COUNT.search(report)
    if found is None:
        raise SystemExit(f"Valgrind did not count:\n{report[-2000:]}")
    return int(found[1].replace(",", ""))


def _each(name: str, who: Contestant, cluster: Cluster) -> float:
    few, many = (_whole(name, who, cluster, n) for n in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def _whole(name: str, who: Contestant, cluster: Cluster, n: int) -> int:
    """The instructions of one run: client and worker, without the server."""
    with Seat(who, cluster) as seat:
        report = Path(seat.scratch, "instructions.txt")
        count = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
        seat.who = replace(who, under=(*count, f"--log-file={report}"))
        seat.run(name, SECONDS, n=n, steps=COUNTED[name])
        return counted(report.read_text())
