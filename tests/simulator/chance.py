"""Chance as the simulator's programs meet it: whole numbers that somebody draws, 0 for whatever is boring."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol, TypeVar

T = TypeVar("T")


class Chance(Protocol):
    """Where choices come from: a seed, a recorded list, or a list that is being shrunk."""

    def draw(self, n: int, /) -> int:
        """A number from 0 to ``n`` - 1; 0 is the boring one."""


class Seeded:
    """Choices that follow from a seed alone, for tests without a simulator."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def draw(self, n: int) -> int:
        return self._random.randrange(n)


class Boring:
    """Nothing but zeroes: the simplest of all that may be drawn."""

    def draw(self, n: int) -> int:
        return 0


def one_in(chance: Chance, n: int) -> bool:
    """True once in ``n`` draws; never if ``n`` is 0."""
    return n > 0 and chance.draw(n) == n - 1


def one_of(chance: Chance, choices: Sequence[T]) -> T:
    """One of these; the first is the boring one."""
    return choices[chance.draw(len(choices))]
