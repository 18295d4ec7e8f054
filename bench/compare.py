"""Alternated pairs: a workload at another commit and at this one by turns, so that both meet the same machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from bench import contestant, workload
from bench.commit import source_of
from bench.contest import ground, one_run, others
from bench.contestant import ROOT, Contestant
from bench.workload import Figure, Workload

USUAL = ("w1", "w2", "w3", "w4", "w10", "w11")
OURS = ("ours", "ours-sqlite")


def compare(commit: str, names: Sequence[str], who: Sequence[str], pairs: int, scale: float = 1.0) -> None:
    """Run so many pairs of each workload, and print each figure of both, with the ratios of the pairs.

    The drivers are today's, the engine is that of its commit. Nothing is kept among the results.
    """
    with tempfile.TemporaryDirectory(prefix="perdure-compare-") as folder:
        source = required(commit, Path(folder))
        print(
            f"| | | {commit} | now | now × {commit}, median | lowest to highest of {pairs} |\n|---|---|---|---|---|---|"
        )
        for name in names or USUAL:
            one = workload.ALL[name]
            for now in (contestant.ALL[taker] for taker in who or OURS):
                if name in now.sizes:
                    _pairs(one, now, at_source(now, source), pairs, now.size(name, scale))


def required(commit: str, folder: Path) -> Path:
    """The source of a commit; SystemExit with what to do if there is none."""
    source = source_of(commit, folder)
    if source is None:
        raise SystemExit(f"there is no commit {commit!r} here; `git log --oneline` lists them")
    return source


def at_source(who: Contestant, source: Path) -> Contestant:
    """The same contestant with the engine of another source."""
    return replace(who, env={**who.env, "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])})


def _pairs(one: Workload, now: Contestant, then: Contestant, pairs: int, size: int) -> None:
    """Measure, who comes first by turns, and print a row for each figure."""
    before: list[dict[str, Any]] = []
    after: list[dict[str, Any]] = []
    with ground(one) as cluster:
        if cluster is None:
            return
        for turn in range(pairs):
            others()
            for who, runs in ((then, before), (now, after))[:: 1 if turn % 2 else -1]:
                runs.append(one_run(one, who, cluster, size))
    for figure in one.figures:
        print(row(one.name, now.title, figure, before, after), flush=True)


def row(name: str, title: str, figure: Figure, before: Sequence[Any], after: Sequence[Any]) -> str:
    """A figure of both commits: medians, and the ratios of the pairs in which both have it."""
    pairs = [
        (then[figure.key], now[figure.key])
        for then, now in zip(before, after, strict=True)
        if then.get(figure.key) and now.get(figure.key) is not None
    ]
    head = f"| {name} {title} | {figure.heading} |"
    if not pairs:
        problem = next(
            (run["problem"].splitlines()[0] for run in (*before, *after) if "problem" in run), "not measured"
        )
        return f"{head} {problem} | | | |"
    then, now = (median(values) for values in zip(*pairs, strict=True))
    ratios = sorted(late / early for early, late in pairs)
    digits = figure.decimals
    return (
        f"{head} {then:,.{digits}f} | {now:,.{digits}f} | {median(ratios):.2f} | {ratios[0]:.2f} to {ratios[-1]:.2f} |"
    )
