"""A journal of the gate: what was found is kept line by line, so that a gate that was interrupted goes on."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct, json

from tests.simulator.broken.chase import ROOT, Found


class Line(Struct):
    """What was found of the defect ``name`` so far, with histories from the seed ``first`` on."""

    name: str
    first: int
    fingerprint: str
    found: Found


class Journal:
    """The lines of all runs; the last one about a defect holds, if nothing has changed since."""

    def __init__(self, path: Path = ROOT / "build" / "gate.jsonl") -> None:
        self.path = path
        self._lines: dict[tuple[str, int, str], Found] = {}
        if path.exists():
            for text in path.read_bytes().splitlines():
                line = json.decode(text, type=Line)
                self._lines[line.name, line.first, line.fingerprint] = line.found

    def found(self, name: str, first: int, fingerprint: str) -> Found:
        """What is known of a defect; nothing, if it was never hunted as it is now."""
        return self._lines.get((name, first, fingerprint), Found(0))

    def seen(self, first: int) -> dict[str, int]:
        """After how many histories each defect was noticed last, also by an engine or histories that were others."""
        return {
            name: one.histories
            for (name, began, _), one in self._lines.items()
            if began == first and one.seed is not None
        }

    def note(self, name: str, first: int, fingerprint: str, found: Found) -> None:
        """Write down what was found."""
        self._lines[name, first, fingerprint] = found
        self.path.parent.mkdir(exist_ok=True)
        with self.path.open("ab") as file:
            file.write(json.encode(Line(name, first, fingerprint, found)) + b"\n")
