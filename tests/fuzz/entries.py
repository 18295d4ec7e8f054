"""All entries, each with what was found in it before."""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz import outside, payloads
from tests.fuzz.entry import Entry
from tests.fuzz.found import FOUND

ENTRIES: tuple[Entry, ...] = tuple(
    replace(entry, seeds=entry.seeds + FOUND.get(entry.name, ())) for entry in (*payloads.ENTRIES, *outside.ENTRIES)
)
