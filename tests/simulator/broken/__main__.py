"""The gate: how many histories does it take to notice each broken engine? ``python -m tests.simulator.broken``.

``MOST=1000`` is how many histories a defect gets at most, ``ONLY=words`` narrows to defects whose names contain them,
``FROM=n`` is the first seed, ``CORES=2`` how many defects are hunted at once. The history that had noticed a defect
when docs/reliability/gate.md was written is played first, and spares the hunt if it still does; ``KNOWN=0`` hunts all.
What was found is kept in ``build/gate.jsonl``: interrupted, or called again with more histories, the gate goes on where
it was. When the engine or the histories have changed, it tells what to play first, as the page does. A run of all
writes the page.

The answer is 1 if a defect got away, a harmless one was noticed, an engine or its test did not run, or a history has
noticed something in which the sound engine breaks a law too. It is 2 if the gate itself is broken: the canary lives, or
the sound engine breaks a law.
"""

from __future__ import annotations

import compileall
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace

from tests.simulator.broken import CANARY, DEFECTS, SOUND, page
from tests.simulator.broken.chase import Found, chased, fingerprint, played, tested
from tests.simulator.broken.defect import SOURCE, Defect
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
        self.not_run: dict[str, str] = {}

    def trouble(self) -> str:
        """What is wrong with the gate itself, if something is: it sees nothing, or what is not there."""
        if not self._first(CANARY, CANARY_MOST).law:
            return "the canary lives: these histories notice nothing at all"
        engines = [sound(histories) for histories in sorted({"", *(one.histories for one in self.defects)})]
        with ThreadPoolExecutor(self.cores) as pool:
            for engine, found in zip(engines, pool.map(lambda one: self._first(one, AT_ONCE), engines), strict=True):
                if found.law:
                    return f"{engine.name} is said to break {found.law}, with seed {found.seed}"
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
        left = [one for one in self.defects if not (one.beyond or self.found[one.name].law or one.name in self.not_run)]
        left = [one for one in left if self.found[one.name].histories < min(reach, self._most(one))]
        self._each(left, lambda one: self._further(one, reach))

    def _each(self, defects: Sequence[Defect], hunt: Callable[[Defect], Found]) -> None:
        """Hunt these, some at once, and note what is found as it comes."""
        with ThreadPoolExecutor(self.cores) as pool:
            hunts = {pool.submit(hunt, one): one for one in defects}
            for done in as_completed(hunts):
                try:
                    self._note(hunts[done], done.result())
                except RuntimeError as error:  # the others are hunted all the same
                    self.not_run[hunts[done].name] = str(error)
                    print(error, flush=True)

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
        noticed = [(one, self.found[one.name].seed) for one in self.defects]
        seeds: dict[str, set[int]] = {}
        for one, seed in noticed:
            if seed is not None:
                seeds.setdefault(one.histories, set()).add(seed)
        with ThreadPoolExecutor(self.cores) as pool:
            broken = dict(zip(seeds, pool.map(_broken_by_the_sound, seeds, seeds.values()), strict=True))
        return [f"{one.name}, with seed {seed}" for one, seed in noticed if seed in broken.get(one.histories, ())]

    def away(self) -> list[str]:
        """The defects that nobody has noticed, though they do harm, and those that are called harmless and are not."""
        ran = [one for one in self.defects if one.name not in self.not_run]
        return [one.name for one in ran if bool(self.found[one.name].law) == bool(one.harmless)]


def sound(histories: str) -> Defect:
    """No defect, in the histories of that scenario."""
    return replace(SOUND, name=f"{SOUND.name}, in {histories}", histories=histories) if histories else SOUND


def _broken_by_the_sound(histories: str, seeds: Iterable[int]) -> set[int]:
    """The seeds with which the sound engine breaks a law, in the histories of that scenario."""
    broken, left = set[int](), sorted(seeds)
    while left:
        seed = played(sound(histories), left).seed
        if seed is None:
            break
        broken.add(seed)
        left = left[left.index(seed) + 1 :]
    return broken


def main(words: Sequence[str]) -> int:
    """Try the gate itself, then hunt every defect that the words name."""
    options = dict(word.split("=", 1) for word in words if "=" in word)
    first, most = int(options.get("FROM") or 0), int(options.get("MOST") or 1_000)
    chosen = tuple(defect for defect in DEFECTS if (options.get("ONLY") or "") in defect.name)
    gate = Gate(chosen, first, most, int(options.get("CORES") or 2))
    compileall.compile_dir(SOURCE, quiet=2)  # once, and not once for each engine
    if trouble := gate.trouble():
        print(trouble)
        return 2
    if options.get("KNOWN") == "0":
        gate.run({})
    else:
        gate.run(({} if first else page.known()) | gate.journal.seen(first))
    print(page.told(gate.found, chosen))
    if chosen == DEFECTS:
        page.write(gate.found, chosen, first)
    away = gate.away()
    for name in away:
        print(f"got away, or is not harmless: {name}")
    for error in gate.not_run.values():
        print(error)
    doubtful = gate.doubtful()
    for name in doubtful:
        print(f"the sound engine breaks a law there too: {name}")
    return int(bool(away or gate.not_run or doubtful))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
