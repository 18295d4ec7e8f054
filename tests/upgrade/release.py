"""The database of a release as it was: made of that release's own SQL, which is kept beside this, with its own rows."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

import asyncpg

from perdure.store.query import split
from perdure.store.sqlite.schema import APPLICATION_ID, statements

FOLDER = Path(__file__).parent / "released"
RELEASES = tuple(sorted(folder.name for folder in FOLDER.iterdir()))
_INSTALLS = re.compile(r"^-- installs: (.+)$", re.MULTILINE)


def queries(release: str, database: str) -> Mapping[str, str]:
    """The named queries of a release."""
    files = sorted((FOLDER / release / "sql" / database).glob("*.sql"))
    return dict(pair for file in files for pair in split(file.read_text(encoding="utf-8")))


def migrations(release: str, database: str) -> list[tuple[int, str]]:
    """The numbered steps of a release; on PostgreSQL each with the functions that it installed."""
    folder = FOLDER / release / "sql" / database
    found = []
    for file in sorted((folder / "migrations").glob("*.sql")):
        text = file.read_text(encoding="utf-8")
        installed = " ".join(_INSTALLS.findall(text)).split()
        parts = [text, *((folder / "functions" / f"{name}.sql").read_text(encoding="utf-8") for name in installed)]
        found.append((int(file.name[:3]), "\n".join(parts)))
    return found


def _rows(release: str, database: str) -> Iterator[str]:
    yield from (FOLDER / release / f"rows_{database}.sql").read_text(encoding="utf-8").splitlines()


def _make_sqlite(release: str, path: str, *, rows: bool) -> None:
    file = sqlite3.connect(path, isolation_level=None)
    file.execute("PRAGMA journal_mode = WAL")
    file.execute("BEGIN")
    for number, text in migrations(release, "sqlite"):
        for statement in statements(text):
            file.execute(statement)
        file.execute(f"PRAGMA user_version = {number}")
    file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    if rows:
        file.execute("DELETE FROM clock")
        for line in _rows(release, "sqlite"):
            file.execute(line)
    file.execute("COMMIT")
    file.close()


async def _make_postgres(release: str, url: str, *, rows: bool) -> None:
    sql = queries(release, "postgres")
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(sql["create_schema"])
            for number, text in migrations(release, "postgres"):
                await connection.execute(text)
                await connection.execute(sql["record_migration"], number, "of that release")
            if rows:
                await connection.execute("DELETE FROM perdure.clock")
                await connection.execute("\n".join(_rows(release, "postgres")))
    finally:
        await connection.close()


async def make(release: str, url: str, *, rows: bool = True) -> None:
    """Make the database of a release in an empty place, with the rows that its engine left there."""
    if url.startswith("sqlite"):
        _make_sqlite(release, url.removeprefix("sqlite:///"), rows=rows)
    else:
        await _make_postgres(release, url, rows=rows)
