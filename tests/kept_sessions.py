"""Sessions of PostgreSQL that outlive the stores of a test: the next store that connects finds them warm.

A session that is new compiles each function at its first call and plans each of its statements: that is two thirds of
what a test with an engine costs the server. So a store that a test opens in its own program connects by way of
a PgBouncer that hands on whole sessions. A store owns its session from the first statement to the last, and the next
one finds it as new, but for plans: between the two all is reset that ``DISCARD ALL`` resets, except for ``DISCARD
PLANS``.

Always direct are: the sessions that hear notifications and hold a worker's lock, since their begin counts; those of
programs that a test starts; whatever else a test connects. Without PgBouncer all are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg

from perdure.store.postgres import connection
from perdure.store.postgres.url import Address, address_of
from perdure.testing.postgres import Server
from tests.pooler import Pooler, program

NAME = "kept for the next store"
"""The application name of a session that nobody uses."""
PURPOSES = ("writes", "beats", "reads", "searches", "streams")
PATH = "pg_catalog, pg_temp"
"""What stores ask for when they connect. Who asks for another path, or for none, gets a connection of one's own."""
FIRST = f"SET search_path = {PATH}"
RESET = (
    "CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; DEALLOCATE ALL; UNLISTEN *; "
    "SELECT pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES; "
    f"{FIRST}; SET application_name = '{NAME}'"
)
SESSIONS = ("pool_mode = session", "default_pool_size = 200", f"server_reset_query = {RESET}")


class KeptSessions:
    """The sessions of one server, kept by a PgBouncer of their own."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._pooler = Pooler(server, SESSIONS, FIRST) if program() else None

    def url(self, direct: str) -> str:
        """The URL of a database by way of these sessions."""
        if self._pooler is None:
            return direct
        return direct.partition("?")[0].replace(f":{self._server.port}/", f":{self._pooler.port}/")

    @contextmanager
    def of(self, url: str) -> Iterator[None]:
        """While inside, stores that this program opens at a URL use these sessions."""
        direct, kept = address_of(url), address_of(self.url(url))
        reached = connection.reached

        async def warm(address: Address, **settings: Any) -> asyncpg.Connection[asyncpg.Record]:
            asked = settings.get("server_settings", {})
            purpose = asked.get("application_name", "").removeprefix("perdure ")
            if address != direct or purpose not in PURPOSES or asked.get("search_path") != PATH:
                return await reached(address, **settings)
            named = {"server_settings": {"application_name": asked["application_name"]}}
            return await reached(kept, **settings | named)

        connection.reached = warm
        try:
            yield
        finally:
            connection.reached = reached

    def remove(self) -> None:
        """End them all."""
        if self._pooler is not None:
            self._pooler.remove()
