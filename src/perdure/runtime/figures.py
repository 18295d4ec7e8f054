"""The figures of this worker, made at each heartbeat from what it has counted: nothing is counted for them."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.clock import SECOND
from perdure.kernel.figures import TOLD, Figures


class FiguresTold:
    """What the heartbeat tells. ``polled_at`` is when the worker last looked for due work, by the store's clock.

    ``slots`` is how many processes it may hold, ``port`` where its metrics are, or 0.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.polled_at = 0
        self.port = 0
        self._at = 0
        self._before: dict[str, int] = {}

    def now(self, at: int, held: int, all: Mapping[str, int]) -> Figures:
        """The figures at a time of the store, from all counters; the rates are those since this was asked last."""
        counters = {name: all[name] for name in TOLD if all[name]}
        seconds = (at - self._at) / SECOND if self._at else 0.0
        rates = {}
        if seconds > 0:
            rises = {name: number - self._before.get(name, 0) for name, number in counters.items()}
            rates = {name: round(rise / seconds, 1) for name, rise in rises.items() if rise}
        self._at, self._before = at, counters
        return Figures(at, held, self.slots, self.polled_at, self.port, counters, rates)
