"""The gate: how many histories does it take to notice each broken engine? ``python -m tests.simulator.broken``.

``MOST=1000`` is how many histories a defect gets at most, ``ONLY=words`` narrows to defects whose names contain them,
``FROM=n`` is the first seed, ``CORES=2`` how many defects are hunted at once. The history that had noticed a defect
when docs/reliability/gate.md was written is played first, and spares the hunt if it still does; ``KNOWN=0`` hunts all.
What was found is kept in ``build/gate.jsonl``: interrupted, or called again with more histories, the gate goes on where
it was, unless the engine or the histories have changed. A run of all writes the page.

The answer is 1 if a defect got away, a harmless one was noticed, or one was noticed by a history in which the sound
engine breaks a law too. It is 2 if the gate itself is broken: the canary lives, or the sound engine breaks a law.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace

from tests.simulator.broken import CANARY, DEFECTS, SOUND, page
from tests.simulator.broken.chase import Found, chased, fingerprint, tested
from tests.simulator.broken.defect import Defect
from tests.simulator.broken.journal import Journal

AT_ONCE = 12
"""Histories of the first round; each round after it has twice as many, for those that got away until then."""
HARMLESS_MOST = 100
CANARY_MOST = 5


class Gate:
    """One run of the gate: hunts ``defects`` in rounds, ever longer, and notes in the journal what it finds."""

    def __init__(self, defects: Sequence[Defect], first: int, most: int, cores: int) -> None:
        self.defects = defects
        self.first = first
        self.most = most
        self.cores = cores
        self.journal = Journal()
        self.prints = {one.name: fingerprint(one) for one in defects}
        self.found = {one.name: self.journal.found(one.name, first, self.prints[one.name]) for one in defects}

    def trouble(self) -> str:
        """What is wrong with the gate itself, if something is: it sees nothing, or what is not there."""
        if not self._first(CANARY, CANARY_MOST).law:
            return "the canary lives: these histories notice nothing at all"
        for histories in sorted({"", *(one.histories for one in self.defects)}):
            found = self._first(sound(histories), AT_ONCE)
            if found.law:
                return f"{sound(histories).name} is said to break {found.law}, with seed {found.seed}"
        return ""

    def _first(self, defect: Defect, most: int) -> Found:
        """What the first histories say, as far as the journal does not know it."""
        name = fingerprint(defect)
        found = self.journal.found(defect.name, self.first, name)
        if not found.histories:
            found = chased(defect, self.first, most)
            self.journal.note(defect.name, self.first, name, found)
        return found

    def run(self, known: Mapping[str, int]) -> None:
        """Hunt all of them, then have ordinary tests notice what histories cannot see.

        ``known`` says after how many histories a defect was noticed before: the last of these is played first.
        """
        left = [one for one in self.defects if one.name in known and not (one.beyond or self.found[one.name].histories)]
        self._each(left, lambda one: self._again(one, known[one.name]))
        reach = 0
        while reach < self.most:
            reach = min(2 * reach or AT_ONCE, self.most)
            self._round(reach)
        self._each([one for one in self.defects if one.beyond and not self.found[one.name].law], tested)

    def _again(self, defect: Defect, histories: int) -> Found:
        """Play the one history that has noticed a defect before: as many as then, if it does so again, or none."""
        found = chased(defect, self.first + histories - 1, 1)
        return Found(histories, found.seed, found.law) if found.law else Found(0)

    def _most(self, defect: Defect) -> int:
        return min(self.most, HARMLESS_MOST) if defect.harmless else self.most

    def _round(self, reach: int) -> None:
        """Hunt those that got away until now, up to so many histories."""
        left = [one for one in self.defects if not (one.beyond or self.found[one.name].law)]
        left = [one for one in left if self.found[one.name].histories < min(reach, self._most(one))]
        self._each(left, lambda one: self._further(one, reach))

    def _each(self, defects: Sequence[Defect], hunt: Callable[[Defect], Found]) -> None:
        """Hunt these, some at once, and note what is found as it comes."""
        with ThreadPoolExecutor(self.cores) as pool:
            hunts = {pool.submit(hunt, one): one for one in defects}
            for done in as_completed(hunts):
                self._note(hunts[done], done.result())

    def _further(self, defect: Defect, reach: int) -> Found:
        """Hunt a defect on from where it was."""
        before = self.found[defect.name].histories
        found = chased(defect, self.first + before, min(reach, self._most(defect)) - before)
        return Found(before + found.histories, found.seed, found.law)

    def _note(self, defect: Defect, found: Found) -> None:
        self.found[defect.name] = found
        self.journal.note(defect.name, self.first, self.prints[defect.name], found)
        how = f"{found.law}, seed {found.seed}" if found.law and found.seed is not None else found.law or "not yet"
        print(f"{found.histories:6,}  {defect.name}: {how}", flush=True)

    def doubtful(self) -> list[str]:
        """What was noticed by a history in which the sound engine breaks a law too: it was not the defect."""
        noticed = [(one, self.found[one.name].seed) for one in self.defects if self.found[one.name].seed is not None]
        places = sorted({(one.histories, seed) for one, seed in noticed if seed is not None})
        with ThreadPoolExecutor(self.cores) as pool:
            laws = pool.map(lambda place: chased(sound(place[0]), place[1], 1).law, places)
            broken = {place for place, law in zip(places, laws, strict=True) if law}
        return [f"{one.name}, with seed {seed}" for one, seed in noticed if (one.histories, seed) in broken]

    def away(self) -> list[str]:
        """The defects that nobody has noticed, though they do harm, and those that are called harmless and are not."""
        return [one.name for one in self.defects if bool(self.found[one.name].law) == bool(one.harmless)]


def sound(histories: str) -> Defect:
    """No defect, in the histories of that scenario."""
    return replace(SOUND, name=f"{SOUND.name}, in {histories}", histories=histories) if histories else SOUND


def main(words: Sequence[str]) -> int:
    """Try the gate itself, then hunt every defect that the words name."""
    options = dict(word.split("=", 1) for word in words if "=" in word)
    first, most = int(options.get("FROM") or 0), int(options.get("MOST") or 1_000)
    chosen = tuple(defect for defect in DEFECTS if (options.get("ONLY") or "") in defect.name)
    gate = Gate(chosen, first, most, int(options.get("CORES") or 2))
    if trouble := gate.trouble():
        print(trouble)
        return 2
    gate.run({} if first or options.get("KNOWN") == "0" else page.known())
    print(page.told(gate.found, chosen))
    if chosen == DEFECTS:
        page.write(gate.found, chosen, first)
    away = gate.away()
    for name in away:
        print(f"got away, or is not harmless: {name}")
    doubtful = gate.doubtful()
    for name in doubtful:
        print(f"the sound engine breaks a law there too: {name}")
    return int(bool(away or doubtful))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
