"""Migrations: the numbered steps that bring a database's schema to the one this Perdure works with.

The steps of a database lie in ``sql/<database>/migrations`` as ``001_what_it_does.sql``. They are applied in order,
each in a transaction of its own together with the note that it was applied, so that a kill in the middle loses at most
the step under way and the next opener goes on from there. A database that has none yet gets them all in one
transaction: a client that opens it meanwhile finds it empty or ready, never half made.
"""

from __future__ import annotations

import re
from functools import cache

from msgspec import Struct

from perdure.errors import StoreTooNew, StoreTooOld
from perdure.store.query import SQL

EMPTY = (
    "the database has no schema of Perdure yet; check the URL. A worker makes it, and so do `perdure migrate` and "
    "Engine(migrate=True)"
)
"""Why a client refuses a database that no worker has opened yet."""

_NAME = re.compile(r"(\d+)_([a-z0-9_]+)\.sql")


class Migration(Struct, frozen=True):
    """One numbered change of the schema."""

    number: int
    name: str
    sql: str


@cache
def steps(database: str) -> tuple[Migration, ...]:
    """All steps for ``sqlite`` or ``postgres``, numbered 1, 2, 3 …; ValueError if one is missing or there twice."""
    folder = SQL / database / "migrations"
    found = []
    for file in folder.iterdir():
        match = _NAME.fullmatch(file.name)
        if match:
            found.append(Migration(int(match[1]), match[2].replace("_", " "), file.read_text(encoding="utf-8")))
    found.sort(key=lambda step: step.number)
    if [step.number for step in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"the migrations of {database} are not numbered 1, 2, 3 …; rename them")
    return tuple(found)


def pending(database: str, reached: int, *, migrate: bool, oldest: int | None = None) -> tuple[Migration, ...]:
    """The steps that a database at the schema number ``reached`` still needs.

    A database newer than this Perdure needs none; ``oldest`` is the oldest schema whose Perdure may use it. Raises
    StoreTooNew if this Perdure is older than that, StoreTooOld if steps are needed and ``migrate`` is false.
    """
    known = steps(database)
    if reached > len(known):
        refuse_too_new(database, reached, oldest)
    left = known[reached:]
    if not (reached or migrate):
        raise StoreTooOld(EMPTY)
    if left and not migrate:
        raise StoreTooOld(
            f"the database is at schema version {reached}, this Perdure needs {len(known)}: run `perdure migrate` first"
        )
    return left


def refuse_too_new(database: str, reached: int, oldest: int | None) -> None:
    """Raise StoreTooNew unless this Perdure may work beside the newer schema of a database."""
    newest = len(steps(database))
    if oldest is None or oldest > newest:
        raise StoreTooNew(
            f"the database is at schema version {reached}, which Perdure can use from version {oldest or reached} on; "
            f"this one knows {newest}: upgrade Perdure on this machine to the version that the other workers run"
        )


def ahead(database: str, reached: int) -> int:
    """The number of a database's schema if it is newer than this Perdure; else 0."""
    return reached if reached > len(steps(database)) else 0


def outgrown(database: str, oldest: int | None) -> bool:
    """Whether the schema of a database has become too new for this Perdure to go on with it."""
    return oldest is not None and oldest > len(steps(database))
