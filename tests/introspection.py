"""The types of one database are asked for once in a session of tests, and not by every connection anew.

asyncpg asks a server for each type that it does not know yet, and a store opens several connections: together with what
it parses of the answer this is a quarter of what opening an engine costs, in a thousand tests. It is spared for the one
database whose schema stays as it is; all others are asked as ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from asyncpg.connection import Connection

ASKED_ALREADY = SimpleNamespace(name="asked already")
"""Stands for the statement that asked: with a name of its own, so that no other has to be prepared anew."""


@contextmanager
def asked_once(*urls: str) -> Iterator[None]:
    """While inside, connections to this one database share what the first has heard of its types."""
    databases = [((place.hostname, place.port), place.path[1:]) for place in map(urlsplit, urls)]
    ask = Connection._introspect_types
    known: dict[frozenset[int], Any] = {}

    async def introspect(self: Any, types: Any, timeout: float) -> Any:
        if (self._addr, self._params.database) not in databases:
            return await ask(self, types, timeout)
        wanted = frozenset(types)
        if wanted in known:
            return known[wanted], ASKED_ALREADY
        told, statement = await ask(self, types, timeout)
        known[wanted] = told
        return told, statement

    Connection._introspect_types = introspect
    try:
        yield
    finally:
        Connection._introspect_types = ask
