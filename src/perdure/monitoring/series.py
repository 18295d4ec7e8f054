"""Series: counters and histograms with labels, in memory, whose number is bounded whatever names the labels get.

The first labels of a family are *open*: kinds, steps and queues, of which a program may make any number. Once a family
has as many series as it may have, a new one is counted under ``other`` in their place, and the log says so once. The
last labels are *closed*: a status, an outcome.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TypeAlias

from perdure import limits
from perdure.logs import logger

Labels: TypeAlias = tuple[str, ...]

OTHER = "other"
BOUNDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0,
    43_200.0, 259_200.0,
)  # fmt: skip
"""The upper bounds of a histogram's buckets in seconds, from a millisecond to three days; longer ones come last."""
_LAST = len(BOUNDS)


class Counts:
    """Counters of one family, by their labels; ``open`` of these are names that programs make."""

    def __init__(self, name: str, open: int, most: int = limits.METRIC_SERIES_RECORDS) -> None:
        self.name = name
        self.open = open
        self.most = most
        self.values: dict[Labels, int] = {}
        self._said = False

    def add(self, labels: Labels, by: int = 1) -> None:
        """Raise one counter."""
        values = self.values
        try:
            values[labels] += by
        except KeyError:
            labels = self._bounded(labels)
            values[labels] = values.get(labels, 0) + by

    def _bounded(self, labels: Labels) -> Labels:
        """The labels of a new series; those of all others once there are too many."""
        if len(self.values) < self.most:
            return labels
        if not self._said:
            self._said = True
            logger("worker").warning(
                "the metric %s has %d series: what is new is counted as %r from now on. Give steps, kinds and queues "
                "fixed names, without ids in them",
                self.name,
                self.most,
                OTHER,
            )
        return (OTHER,) * self.open + labels[self.open :]


class Histograms:
    """Histograms of one family, by their labels: the counts of the buckets, with the sum of seconds behind them."""

    def __init__(self, name: str, open: int, most: int = limits.METRIC_SERIES_RECORDS) -> None:
        self._counts = Counts(name, open, most)
        self.name = name
        self.cells: dict[Labels, list[float]] = {}

    def observe(self, labels: Labels, seconds: float, many: int = 1) -> None:
        """Note that so many took so many seconds each; a negative number, by clocks that differ, counts as none."""
        cell = self.cells.get(labels) or self.cell(labels)
        cell[bisect_left(BOUNDS, seconds)] += many
        if seconds > 0.0:
            cell[-1] += many * seconds

    def cell(self, labels: Labels) -> list[float]:
        """The counts of a new series, or those of all others once there are too many."""
        labels = self._counts._bounded(labels)
        cell = self.cells.get(labels)
        if cell is None:
            cell = self.cells[labels] = [0] * (_LAST + 1) + [0.0]
            self._counts.values[labels] = 0
        return cell

    def __iter__(self) -> Iterator[tuple[Labels, list[tuple[str, float]], float]]:
        """Each series: its labels, its buckets as Prometheus counts them (each with all below it), and its sum."""
        for labels, cell in list(self.cells.items()):
            buckets, total = [], 0.0
            for bound, count in zip((*map(str, BOUNDS), "+Inf"), cell, strict=False):
                total += count
                buckets.append((bound, total))
            yield labels, buckets, cell[-1]
