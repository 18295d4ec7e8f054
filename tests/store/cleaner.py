"""A cleaner: makes one migrated PostgreSQL database as good as new between tests, on a connection of its own.

The connection stays from test to test: a new one would cost the server more than all that is asked of it.
"""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType

import psycopg

from tests.kept_sessions import NAME
from tests.store.ground_postgres import DELETE, FEW, FULL, NO_STREAMS, RESET, TRUNCATE

LEFT_OPEN = """
    SELECT pg_terminate_backend(s.pid) FROM pg_stat_activity s
    WHERE s.datname = current_database() AND s.pid <> pg_backend_pid() AND s.application_name <> %s
"""
LEFT_BESIDE = """
    SET client_min_messages = warning;
    DO $$
    DECLARE
        one regclass;
    BEGIN
        FOR one IN SELECT c.oid FROM pg_class c WHERE c.relkind = 'r' AND c.oid > (
            SELECT max(p.oid) FROM pg_proc p WHERE p.pronamespace = 'perdure'::regnamespace) LOOP
            EXECUTE format('DROP TABLE %s CASCADE', one);
        END LOOP;
    END
    $$
"""
"""Drops the tables of a test's own: they are younger than what migrating has made."""


class Cleaner:
    """Empties the database at this URL, whatever the test before has left in it and whoever is still there."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection: psycopg.Connection | None = None

    def __enter__(self) -> Cleaner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def clear(self) -> None:
        """Make the database as good as new; a connection that was lost meanwhile, with its server, is made anew."""
        if self._connection is not None:
            try:
                self._clear(self._connection)
                return
            except psycopg.OperationalError:
                self._leave()
        self._connection = psycopg.connect(self.url, autocommit=True)
        self._clear(self._connection)

    def _clear(self, connection: psycopg.Connection) -> None:
        connection.execute(LEFT_OPEN, [NAME])
        connection.execute(LEFT_BESIDE)
        connection.execute(NO_STREAMS)
        [rows] = connection.execute(FULL).fetchone() or [0]
        connection.execute(DELETE if rows <= FEW else TRUNCATE)
        connection.execute(RESET.replace("$1", "NULL"))

    def _leave(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.OperationalError):
                self._connection.close()
            self._connection = None
