"""The schema as the migrations of both databases write it: tables with their columns and constraints."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tests.house.tree import PACKAGE

DATABASES = ("sqlite", "postgres")
_TABLE = re.compile(r"CREATE (?:UNLOGGED )?TABLE (?:IF NOT EXISTS )?(?:perdure\.)?(\w+)\s*\(", re.IGNORECASE)
_ADDED = re.compile(r"ALTER TABLE (?:perdure\.)?(\w+)\s+ADD COLUMN (?:IF NOT EXISTS )?(\w+)", re.IGNORECASE)
_NO_COLUMN = ("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "EXCLUDE")


@dataclass
class Table:
    """One table: its columns in order, and the names of its constraints."""

    columns: list[str] = field(default_factory=list)
    constraints: set[str] = field(default_factory=set)


def schema(database: str) -> dict[str, Table]:
    """The tables of one database by name."""
    files = sorted((PACKAGE / "store" / "sql" / database).rglob("*.sql"))
    return tables("\n".join(path.read_text(encoding="utf-8") for path in files))


def tables(sql: str) -> dict[str, Table]:
    """The tables that this SQL creates."""
    sql = re.sub(r"--[^\n]*", "", sql)
    found: dict[str, Table] = {}
    for opening in _TABLE.finditer(sql):
        table = found.setdefault(opening[1], Table())
        for part in _parts(sql[opening.end() :]):
            first = part.split()[0]
            if first.upper() not in _NO_COLUMN:
                table.columns.append(first)
            table.constraints |= set(re.findall(r"\bCONSTRAINT (\w+)", part))
    for name, column in _ADDED.findall(sql):
        found[name].columns.append(column)
    return found


def _parts(rest: str) -> list[str]:
    """What stands between the commas of a CREATE TABLE, up to its closing bracket."""
    parts, depth, begin = [], 0, 0
    for place, sign in enumerate(rest):
        depth += (sign == "(") - (sign == ")")
        if depth < 0 or (depth == 0 and sign == ","):
            parts.append(rest[begin:place].strip())
            begin = place + 1
        if depth < 0:
            break
    return [part for part in parts if part]
