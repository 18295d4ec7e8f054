"""The pages of the documentation as the house tests read them: tables, code spans, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.tree import PACKAGE, ROOT, named, parsed, tracked

DOCS = ROOT / "docs"
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"\[[^\]\n]+\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def pages() -> list[Path]:
    """Every page: README, CHANGELOG and all below docs/."""
    return [path for path in tracked() if path.suffix == ".md" and (DOCS in path.parents or path.parent == ROOT)]


def rows(text: str, header: str) -> list[list[str]]:
    """The cells of the first table whose first column is headed by ``header``."""
    lines = text.splitlines()
    begin = next(n for n, line in enumerate(lines) if re.match(rf"\|\s*{re.escape(header)}\s*\|", line))
    found = []
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip().strip("|").split(" | ")])
    return found


def spans(text: str) -> list[str]:
    """What stands in code spans, outside of fenced blocks."""
    return _SPAN.findall(_FENCE.sub("", text))


def blocks(text: str) -> list[tuple[str, str]]:
    """The fenced blocks: (language, content)."""
    return _FENCE.findall(text)


def links(text: str) -> Iterator[str]:
    """The targets of links, outside of fenced blocks."""
    yield from _LINK.findall(_FENCE.sub("", text))


def file_named(name: str) -> Path | None:
    """The file that a page means by a path: from the root, from the package, or the end of exactly one path."""
    for home in (ROOT, PACKAGE, DOCS):
        if (home / name).exists():
            return home / name
    ends = [path for path in named().get(name.rpartition("/")[2], ()) if path.as_posix().endswith(f"/{name}")]
    return ends[0] if len(ends) == 1 else None


def holds(path: Path, name: str) -> bool:
    """Whether the file defines that name: a definition in Python, a word in anything else."""
    if path.suffix == ".py":
        return name in parsed(path).names
    return re.search(rf"(?<![\w.]){re.escape(name)}\b", path.read_text(encoding="utf-8")) is not None
