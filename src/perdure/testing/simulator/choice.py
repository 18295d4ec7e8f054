"""Choices: the one sequence of draws that a simulated history consists of; the same draws give the same history."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Draws numbers from a seed and records them in ``made``, or hands recorded ones out again.

    ``kinds`` says of each what it was for.

    The answer 0 is always the boring one: no fault, the shortest wait, whoever is first. Recorded draws that have
    been used up are followed by zeros, so that a shortened record still is a history: that is how one is shrunk.
    """

    def __init__(self, seed: int, recorded: Sequence[int] | None = None) -> None:
        self.seed = seed
        self.made: list[int] = []
        self.kinds: list[str] = []
        self._recorded = recorded
        self._random = random.Random(seed).random

    def draw(self, options: int, kind: str = "scenario") -> int:
        """A number from 0 up to but not including ``options``; ``kind`` says what it is for."""
        if options <= 1:
            return 0
        drawn = int(self._random() * options) if self._recorded is None else min(self._next(), options - 1)
        self.made.append(drawn)
        self.kinds.append(kind)
        return drawn

    def chance(self, probability: float, kind: str = "scenario") -> bool:
        """True with that probability (0 to 1); false is the boring answer."""
        if probability <= 0:
            return False
        drawn = int(self._random() < probability) if self._recorded is None else min(self._next(), 1)
        self.made.append(drawn)
        self.kinds.append(kind)
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
            drawn = min(self._next(), len(rates))
            if drawn and rates[drawn - 1] <= 0:
                drawn = 0
        self.made.append(drawn)
        self.kinds.append(kind)
        return drawn

    def pick(self, options: Sequence[T], kind: str = "scenario") -> T:
        """One of the options; the first is the boring one."""
        return options[self.draw(len(options), kind)]

    def _next(self) -> int:
        recorded, at = self._recorded, len(self.made)
        assert recorded is not None
        return recorded[at] if at < len(recorded) else 0
