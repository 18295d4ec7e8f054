"""The page of the gate: which broken engine is noticed after how many histories, as the last whole run found it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from tests.simulator.broken.chase import ROOT, Found
from tests.simulator.broken.defect import Defect, chapters

PATH = ROOT / "docs" / "reliability" / "gate.md"
HEAD = """# The gate: engines broken on purpose

`make gate` writes this page. Each line is an engine that lacks a rule of the [protocol](../PROTOCOL.md), by an edit in
`tests/simulator/broken/`, planted in a copy of the package. It is hunted with the histories of `make sim`, from seed
{first} on, until one breaks a law; the line says after how many. Under other seeds it is noticed sooner or later. Where
the law is followed by a name, the histories are those of that scenario in `tests/simulator`. What was not noticed in so
many histories is hunted on by `make gate MOST=5000`, or any number. The next run of the gate plays the seed that this
page names first, and hunts only what that history does not notice any more; `make gate KNOWN=0` hunts them all.
"""
NOTICED = re.compile(r"\| (?P<name>[^|]+) \| [^|]+ \| (?P<histories>[\d,]+) \| `")


def page(found: Mapping[str, Found], defects: tuple[Defect, ...], first: int) -> str:
    """The whole page."""
    parts = [HEAD.format(first=first), told(found, defects), ""]
    for chapter in chapters():
        own = [defect for defect in defects if defect.chapter == chapter and not (defect.harmless or defect.beyond)]
        if not own:
            continue
        parts += [
            f"## {chapter.capitalize()}",
            "",
            "| the broken engine | rule | histories | law |",
            "|---|---|---|---|",
        ]
        for defect in own:
            one = found[defect.name]
            count = (
                f"{one.histories:,}"
                if one.law
                else f"**not in {one.histories:,}**"
                if one.histories
                else "not yet hunted"
            )
            parts.append(f"| {defect.name} | {defect.rule} | {count} | {_law(one)}{_where(defect)} |")
        parts.append("")
    parts += ["## Beyond the sight of histories", "", "An ordinary test notices these; the gate runs it on each.", ""]
    parts += ["| the broken engine | rule | why | noticed by |", "|---|---|---|---|"]
    for defect in (one for one in defects if one.beyond):
        one = found[defect.name]
        by = ", ".join(f"`{test}`" for test in defect.tests) if one.law else "**nobody**"
        by = by if one.histories else "not yet tried"
        parts.append(f"| {defect.name} | {defect.rule} | {defect.beyond} | {by} |")
    parts += ["", "## Harmless", "", "These change nothing that anybody can observe: another guard holds.", ""]
    parts += ["| the broken engine | rule | what holds nevertheless | tried with |", "|---|---|---|---|"]
    for defect in (one for one in defects if one.harmless):
        one = found[defect.name]
        tried = f"**noticed: {one.law}**" if one.law else f"{one.histories:,}"
        parts.append(f"| {defect.name} | {defect.rule} | {defect.harmless} | {tried} |")
    return "\n".join(parts) + "\n"


def known(path: Path = PATH) -> dict[str, int]:
    """After how many histories each defect was noticed, as the page says."""
    rows = (NOTICED.match(line) for line in path.read_text().splitlines()) if path.exists() else ()
    return {row["name"]: int(row["histories"].replace(",", "")) for row in rows if row}


def told(found: Mapping[str, Found], defects: tuple[Defect, ...]) -> str:
    """The figures in one sentence."""
    counts = [found[one.name].histories for one in defects if found[one.name].law and not one.beyond]
    hunted = [one for one in defects if not (one.beyond or one.harmless)]
    middle = f", after {median(counts):g} histories by the median and {max(counts):,} at the worst" if counts else ""
    return (
        f"{len(counts)} of {len(hunted)} were noticed by histories{middle}; "
        f"{sum(bool(one.beyond) for one in defects)} are left to ordinary tests, "
        f"{sum(bool(one.harmless) for one in defects)} are harmless."
    )


def _where(defect: Defect) -> str:
    return f" in `{defect.histories.partition(':')[0]}`" if defect.histories else ""


def _law(found: Found) -> str:
    return f"`{found.law}`" if found.law else ""


def write(found: Mapping[str, Found], defects: tuple[Defect, ...], first: int, path: Path = PATH) -> None:
    """Put the page where people look for it."""
    path.write_text(page(found, defects, first))
