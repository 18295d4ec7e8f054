"""A defect: one rule of the protocol taken out of a copy of the engine, to see whether the proof notices.

Defects stand in the text files of this folder. One is a line ``# what the broken engine does``, its ``rule:`` (of the
protocol, or a law's name), ``histories:`` and the scenario that hunts it (``core_damage:damaging``) if that is not the
ordinary one, ``harmless:`` and the reason if another guard makes the engine right all the same, ``beyond:`` and the
reason if histories cannot see it, with the ordinary ``test:`` that does, and for each edit ``@ file``, the lines that
stand there exactly once, each after ``-``, and after ``+`` what replaces them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import perdure

SOURCE = Path(perdure.__file__).parent
FIRST_CHAPTERS = ("writing", "owning", "turning")


@dataclass
class Edit:
    """A file of the package, the lines that stand there once, and those of a broken engine."""

    file: str
    right: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def made(self, text: str) -> str:
        """The text with the edit made; raises ValueError if it does not fit."""
        right = "\n".join(self.right)
        if text.count(right) != 1:
            raise ValueError(f"{self.file}: {right!r} stands there {text.count(right)} times")
        return text.replace(right, "\n".join(self.wrong))


@dataclass
class Defect:
    """What a broken engine does, and how it is broken."""

    name: str
    chapter: str = ""
    rule: str = ""
    histories: str = ""
    harmless: str = ""
    beyond: str = ""
    tests: list[str] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)


def chapters() -> list[str]:
    """The names of the text files: what the protocol begins with, then the others by name."""
    others = {path.stem for path in Path(__file__).parent.glob("*.txt")}.difference(FIRST_CHAPTERS)
    return [*FIRST_CHAPTERS, *sorted(others)]


def read() -> Iterator[Defect]:
    """Every defect, chapter after chapter."""
    for chapter in chapters():
        text = (Path(__file__).parent / f"{chapter}.txt").read_text()
        for part in f"\n{text}".split("\n# ")[1:]:
            name, _, rest = part.partition("\n")
            yield _defect(Defect(name.strip(), chapter), rest)


def _defect(defect: Defect, text: str) -> Defect:
    """Take in what stands below the name of a defect."""
    for line in text.splitlines():
        sign, rest = line[:1], line[1:]
        word, _, told = line.partition(":")
        if sign == "@":
            defect.edits.append(Edit(rest.strip()))
        elif sign == "-":
            defect.edits[-1].right.append(rest)
        elif sign == "+":
            defect.edits[-1].wrong.append(rest)
        elif word == "test":
            defect.tests.append(told.strip())
        elif word in ("rule", "histories", "harmless", "beyond"):
            setattr(defect, word, told.strip())
        elif line:
            raise ValueError(f"{defect.name}: what does {line!r} mean?")
    return defect


def plant(defect: Defect, folder: Path) -> Path:
    """Put the package into a folder, with the defect in it; the answer is what PYTHONPATH must begin with.

    What no edit touches is a link to the tree, with what is compiled there: a broken engine is imported many times, and
    to copy a thousand files for a line in one of them would cost as much as many a history.
    """
    texts: dict[Path, str] = {}
    for edit in defect.edits:
        path = SOURCE / edit.file
        texts[path] = edit.made(texts.get(path) or path.read_text())
    _mirror(SOURCE, folder / "perdure", texts)
    return folder


def _mirror(source: Path, place: Path, texts: Mapping[Path, str]) -> None:
    """Make a folder like ``source``: these files with their new texts, folders without any of them as one link.

    A folder of compiled files that belongs to an edited one stays the copy's own: what is compiled from the new text
    must not come to lie in the tree.
    """
    place.mkdir()
    for entry in source.iterdir():
        if entry in texts:
            (place / entry.name).write_text(texts[entry])
        elif entry.name == "__pycache__":
            (place / entry.name).mkdir()
            edited = {path.stem for path in texts if path.parent == source}
            for compiled in entry.glob("*.pyc"):
                if compiled.name.partition(".")[0] not in edited:
                    (place / entry.name / compiled.name).symlink_to(compiled)
        elif any(entry in path.parents for path in texts):
            _mirror(entry, place / entry.name, texts)
        else:
            (place / entry.name).symlink_to(entry)


def misfits(defect: Defect) -> Iterator[str]:
    """The edits that no longer fit the source, in words."""
    texts: dict[str, str] = {}
    for edit in defect.edits:
        try:
            texts[edit.file] = edit.made(texts.get(edit.file) or (SOURCE / edit.file).read_text())
        except ValueError as misfit:
            yield f"{defect.name}: {misfit}"
