"""Choices: the draws that a simulated history consists of; the same draws give the same history."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeVar

T = TypeVar("T")

APART = {"cut": "apart from {}", "door": "apart from {}", "lock": "locks of {}"}
"""Kinds of draws that come from generators of their own, seeded so: they were added later, and do not shift the older
draws."""

Record: TypeAlias = Mapping[str, Sequence[int]]
"""The draws of a history in their order, by what they were for."""


class Choices:
    """Draws numbers from a seed and records them in ``made``, or hands recorded ones out again.

    The answer 0 is always the boring one: no fault, the shortest wait, the first in line. Recorded draws that have
    been used up are followed by zeros, so that a shortened record still is a history: that is how one is shrunk.
    Every kind of draw has a record of its own, so that a draw that is taken back does not shift all others.
    """

    def __init__(self, seed: int, recorded: Record | None = None) -> None:
        self.seed = seed
        self.made: defaultdict[str, list[int]] = defaultdict(list)
        self._recorded = recorded
        self._random = random.Random(seed).random
        apart = {text: random.Random(text.format(seed)).random for text in sorted(set(APART.values()))}
        self._apart = {kind: apart[text] for kind, text in APART.items()}

    def draw(self, options: int, kind: str = "scenario") -> int:
        """A number from 0 up to but not including ``options``; ``kind`` says what it is for."""
        if options <= 1:
            return 0
        drawn = int(self._next_random(kind) * options) if self._recorded is None else min(self._next(kind), options - 1)
        self.made[kind].append(drawn)
        return drawn

    def chance(self, probability: float, kind: str = "scenario") -> bool:
        """True with that probability (0 to 1); false is the boring answer."""
        if probability <= 0:
            return False
        drawn = int(self._next_random(kind) < probability) if self._recorded is None else min(self._next(kind), 1)
        self.made[kind].append(drawn)
        return drawn == 1

    def weigh(self, rates: Sequence[float], kind: str) -> int:
        """Which of several things happens: n + 1 with the probability ``rates[n]``, 0 (nothing) with what is left."""
        drawn = 0
        if self._recorded is None:
            at = self._random()
            for number, rate in enumerate(rates, 1):
                at -= rate
                if at < 0:
                    drawn = number
                    break
        else:
            drawn = min(self._next(kind), len(rates))
            if drawn and rates[drawn - 1] <= 0:
                drawn = 0
        self.made[kind].append(drawn)
        return drawn

    def pick(self, options: Sequence[T], kind: str = "scenario") -> T:
        """One of the options; the first is the boring one."""
        return options[self.draw(len(options), kind)]

    def _next_random(self, kind: str) -> float:
        return self._apart.get(kind, self._random)()

    def _next(self, kind: str) -> int:
        assert self._recorded is not None
        recorded, at = self._recorded.get(kind, ()), len(self.made[kind])
        return recorded[at] if at < len(recorded) else 0
