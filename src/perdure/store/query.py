"""Named queries: SQL lives in ``.sql`` files and is called by its name.

A file holds queries one after the other, each under a header ``-- name: claim_due``. Comment lines directly under
the header say why the query is as it is, above all where it differs from the other database's query of that name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

SQL = Path(__file__).with_name("sql")
"""The folder with all SQL, by database."""

_HEADER = re.compile(r"^-- name:[ \t]*([a-z_][a-z0-9_]*)[ \t]*$", re.MULTILINE)
_ROWS = re.compile(r"/\* each \*/(.*?)/\* end \*/", re.DOTALL)


@cache
def load(database: str) -> Mapping[str, str]:
    """All queries of ``sql/<database>/*.sql`` by name; ``database`` is ``sqlite`` or ``postgres``.

    Files in deeper folders (migrations) are not queries. Raises ValueError for a name that is given twice.
    """
    found: dict[str, str] = {}
    folder = SQL / database
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".sql"):
            continue
        for name, text in split(file.read_text(encoding="utf-8")):
            if name in found:
                raise ValueError(f"the query {name} of {database} is there twice; rename the one in {file.name}")
            found[name] = text
    return MappingProxyType(found)


def split(text: str) -> list[tuple[str, str]]:
    """The (name, SQL) pairs of one file; what stands before the first header belongs to no query."""
    headers = list(_HEADER.finditer(text))
    ends = [header.start() for header in headers[1:]] + [len(text)]
    return [(header[1], text[header.end() : end].strip()) for header, end in zip(headers, ends, strict=True)]


def repeated(query: str, rows: int) -> str:
    """The query with what stands between ``/* each */`` and ``/* end */`` written out ``rows`` times."""
    return _ROWS.sub(lambda row: ", ".join([row[1].strip()] * rows), query)
