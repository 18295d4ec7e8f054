"""Shrinking: a failing history is repeated with fewer and fewer decisions, as long as the same law is broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from perdure.clock import Machine
from perdure.testing.simulator.history import History

Repeat: TypeAlias = Callable[[Sequence[int]], History]
"""Runs the history again with these choices."""

SECONDS = 60.0


def shrink(failed: History, repeat: Repeat, *, seconds: float = SECONDS) -> History:
    """The history with the fewest decisions found in ``seconds`` that breaks the same law; at worst ``failed`` itself.

    Decisions are set to 0, the boring answer: first all of one kind, then blocks of half the size again and again.
    """
    return _Shrinking(failed, repeat, Machine().monotonic() + seconds).run()


class _Shrinking:
    def __init__(self, failed: History, repeat: Repeat, until: float) -> None:
        self.best = failed
        self.repeat = repeat
        self.until = until
        self.tries = 0

    def run(self) -> History:
        if self.best.violation is None:
            return self.best
        for kind in sorted(set(self.best.kinds)):
            places = [place for place in self._decisions() if self.best.kinds[place] == kind]
            self._without(places)
        before = -1
        while self.best.decisions != before and not self._late():
            before = self.best.decisions
            self._halve()
        self._lower()
        return self.best

    def _late(self) -> bool:
        return Machine().monotonic() >= self.until

    def _decisions(self) -> list[int]:
        return [place for place, choice in enumerate(self.best.choices) if choice]

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

    def _lower(self) -> None:
        """Make what is left as small as it can be."""
        for place in self._decisions():
            if place < len(self.best.choices) and self.best.choices[place] > 1 and not self._late():
                choices = self.best.choices[:]
                choices[place] = 1
                self._try(choices)

    def _without(self, places: Sequence[int]) -> None:
        if not places:
            return
        choices = self.best.choices[:]
        for place in places:
            choices[place] = 0
        self._try(choices)

    def _try(self, choices: list[int]) -> None:
        """Keep a history if it breaks the same law with fewer or smaller decisions."""
        self.tries += 1
        found = self.repeat(choices)
        law = None if found.violation is None else found.violation.law
        assert self.best.violation is not None
        smaller = (found.decisions, sum(found.choices)) < (self.best.decisions, sum(self.best.choices))
        if law == self.best.violation.law and smaller:
            self.best = found
