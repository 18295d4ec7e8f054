"""Shrinking: a failing history is repeated with fewer and fewer decisions, as long as the same law is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import TypeAlias

from perdure.clock import Computer
from perdure.testing.simulator.choice import Record
from perdure.testing.simulator.history import History
from perdure.testing.simulator.swarm import SCALES

Repeat: TypeAlias = Callable[[Record, int], History]
"""Runs the history again with these choices, and cuts it short after so many calls."""
Place: TypeAlias = tuple[str, int]
"""A decision: what it was for, and its number among the draws for that."""

SECONDS = 60.0
FEW = 15
"""People can read so many decisions: then each is tried to be taken back, but no pairs."""
FIRST = ("next", "latency", "hint", "skew", "sessions")
"""Kinds of decisions that a failure seldom needs: before all others, each kind is taken back as a whole."""
LONGER, MORE_CALLS = 1.5, 3_000
"""How much longer than the shortest one so far a history may take: one that fails later fails of something else."""


def shrink(failed: History, repeat: Repeat, *, seconds: float = SECONDS) -> History:
    """The history with the fewest decisions found in ``seconds`` that breaks the same law; at worst ``failed`` itself.

    Decisions are set to 0, the boring answer: first all of one kind, then blocks of half the size again and again,
    then two at a time; and to half of what they were, which makes a history short.
    """
    return _Shrinking(failed, repeat, Computer().monotonic() + seconds).run()


class _Shrinking:
    def __init__(self, failed: History, repeat: Repeat, until: float) -> None:
        self.best = failed
        self.repeat = repeat
        self.until = until
        self._tried: set[frozenset[tuple[str, int, int]]] = set()

    def run(self) -> History:
        if self.best.violation is None:
            return self.best
        for scale in range(len(SCALES)):  # every call equally slow is simpler than some of them
            self._keep({**self.best.choices, "scale": [scale], "latency": []})
        kinds = sorted(self.best.choices.keys() - set(FIRST), key=lambda kind: (-len(self.best.choices[kind]), kind))
        for kind in (*FIRST, *kinds):
            self._without(self._decisions([kind]))
        self._lower(["scenario", "swarm"])
        size = None
        while size != _size(self.best) and not self._late():
            size = _size(self.best)
            self._halve()
            self._lower(self.best.choices)
            if size == _size(self.best) and self.best.decisions > FEW:
                self._pairs()
        return self.best

    def _late(self) -> bool:
        return Computer().monotonic() >= self.until

    def _decisions(self, kinds: Iterable[str] | None = None) -> list[Place]:
        return [
            (kind, place)
            for kind in sorted(self.best.choices if kinds is None else kinds)
            for place, choice in enumerate(self.best.choices.get(kind, ()))
            if choice
        ]

    def _halve(self) -> None:
        """Take back blocks of decisions, the later ones first, in ever smaller blocks."""
        size = max(1, len(self._decisions()) // 2)
        while not self._late():
            at = len(self._decisions())
            while at > 0 and not self._late():
                decisions = self._decisions()
                at = min(at, len(decisions))
                self._without(decisions[max(0, at - size) : at])
                at -= size
            if size == 1:
                return
            size //= 2

    def _pairs(self) -> None:
        """Where no decision can go alone, two of them may: a kill and the start after it."""
        for one, other in combinations(self._decisions(), 2):
            before = self.best
            self._without([one, other])
            if self.best is not before or self._late():
                return

    def _lower(self, kinds: Iterable[str]) -> None:
        """Make what is left smaller: to 1 if that will do, else to half of it."""
        for kind, place in self._decisions(kinds):
            for lower in (lambda choice: 1, lambda choice: choice // 2, lambda choice: choice - 1):
                chosen = self.best.choices.get(kind, [])
                if place < len(chosen) and chosen[place] > 1 and not self._late():
                    self._try([(kind, place)], lower(chosen[place]))

    def _without(self, places: Sequence[Place]) -> None:
        if places:
            self._try(places, 0)

    def _try(self, places: Sequence[Place], choice: int) -> None:
        choices = {kind: chosen[:] for kind, chosen in self.best.choices.items()}
        for kind, place in places:
            choices[kind][place] = choice
        self._keep(choices)

    def _keep(self, choices: Record) -> None:
        """Keep a history if it breaks the same law with fewer or smaller decisions; none is tried twice."""
        asked = frozenset(
            (kind, place, choice) for kind, chosen in choices.items() for place, choice in enumerate(chosen) if choice
        )
        if asked in self._tried or self._late():
            return
        self._tried.add(asked)
        found = self.repeat(choices, int(LONGER * self.best.calls) + MORE_CALLS)
        law = None if found.violation is None else found.violation.law
        assert self.best.violation is not None
        if law == self.best.violation.law and _size(found) < _size(self.best):
            self.best = found


def _size(history: History) -> tuple[int, int]:
    return history.decisions, sum(map(sum, history.choices.values()))
