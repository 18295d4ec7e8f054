"""A tour: every point of a plot, or every pair of points, played one after the other and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import TypeAlias

from perdure.clock import Computer
from tests.simulator.enumeration.passage import Passage, played
from tests.simulator.enumeration.plot import Plot
from tests.simulator.enumeration.plots import PLOTS
from tests.simulator.enumeration.point import SIDES, Call, Point

Points: TypeAlias = tuple[Point, ...]
AT_ONCE = 40
"""Passages that a core is given at a time."""


@dataclass
class Failed:
    """A passage in which a law was broken: the points, the law and the text."""

    points: Points
    law: str
    text: str

    def command(self, plot: str) -> str:
        """What repeats it."""
        return f"make crash ONLY={plot} AT={','.join(map(str, self.points))}"


@dataclass
class Tally:
    """What a tour came to: ``calls`` by role in the passage without a blow, and how many passages there were.

    ``latest`` is the virtual second at which the slowest passage was at rest, ``took`` the real seconds of the tour.
    """

    calls: Counter[str] = field(default_factory=Counter)
    points: int = 0
    pairs: int = 0
    transactions: int = 0
    latest: float = 0.0
    took: float = 0.0
    failed: list[Failed] = field(default_factory=list)

    def add(self, passage: Passage) -> None:
        """Count one passage."""
        self.points += len(passage.points) == 1
        self.pairs += len(passage.points) == 2
        self.transactions += passage.history.transactions
        self.latest = max(self.latest, passage.seconds)
        broken = passage.history.violation
        if broken is not None:
            self.failed.append(Failed(passage.points, broken.law, broken.text))

    def merge(self, other: Tally) -> None:
        """Add what others have counted."""
        self.points += other.points
        self.pairs += other.pairs
        self.transactions += other.transactions
        self.latest = max(self.latest, other.latest)
        self.failed += other.failed


def points_at(calls: Iterable[Call], sides: Iterable[str] = tuple(SIDES)) -> list[Point]:
    """All that can happen at these calls."""
    sides = tuple(sides)
    return [Point(call.node, call.number, side) for call in calls for side in sides]


def toured(plot: Plot, blows: Iterable[Points]) -> Tally:
    """Play a plot once for each of these."""
    tally = Tally()
    for points in blows:
        tally.add(played(plot, points))
    return tally


def hunted(plot: Plot, sides: Sequence[str], every: int = 1) -> Failed | None:
    """The first passage in which something is broken; one without a blow is the first of all.

    ``every`` takes each so manieth point: an odd number, or all are on the same side.
    """
    clean = played(plot)
    for points in [(), *((point,) for point in points_at(clean.calls, sides)[::every])]:
        broken = played(plot, points).history.violation
        if broken is not None:
            return Failed(points, broken.law, broken.text)
    return None


def seconds_after(plot: Plot, first: Point, sides: Sequence[str], every: int = 1) -> list[Points]:
    """A first blow with each second one that can fall after it: at the calls that are made then, whoever makes them."""
    return [(first, second) for second in points_at(played(plot, (first,)).after(), sides)[::every]]


def explored(plot: Plot, pool: Executor, *, pairs: bool) -> Tally:
    """Every point of a plot, and if it has pairs all of these."""
    began = Computer().monotonic()
    clean = played(plot)
    tally = Tally(Counter(call.role for call in clean.calls))
    tally.add(clean)
    for future in _asked(plot, pool, clean, pairs=pairs):
        tally.merge(future.result())
    tally.took = Computer().monotonic() - began
    tally.failed.sort(key=lambda one: (len(one.points), one.points))
    return tally


def _asked(plot: Plot, pool: Executor, clean: Passage, *, pairs: bool) -> Iterator[Future[Tally]]:
    singles: list[Points] = [(point,) for point in points_at(clean.calls)]
    asked = [pool.submit(_singles, plot.name, singles[at : at + AT_ONCE]) for at in range(0, len(singles), AT_ONCE)]
    if pairs and plot.pairs:
        asked += [pool.submit(_pairs, plot.name, first) for first in points_at(clean.calls, plot.pairs)]
    yield from asked


def _singles(name: str, blows: Sequence[Points]) -> Tally:
    return toured(PLOTS[name], blows)


def _pairs(name: str, first: Point) -> Tally:
    plot = PLOTS[name]
    return toured(plot, seconds_after(plot, first, plot.pairs))
