"""Databases full of decoys, in which the engine must not use a single one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from perdure.store.postgres.store import PostgresStore
from perdure.testing.clock import NOON
from perdure.testing.postgres import Server, at_once
from tests.kept_sessions import KeptSessions
from tests.store.ground_postgres import PostgresGround, empty
from tests.store.postgres import decoy

PATHS = {"ordinary": f"{decoy.OWN}, public", "turned": f"{decoy.OWN}, public, pg_catalog"}
"""The engine's own search path: as servers come, and with what the server ships named last."""


def databases(server: Server) -> dict[str, str]:
    """A migrated database full of decoys for each path, which were there before its schema was made: their names."""
    name = server.fresh_database().rpartition("/")[2]
    server.execute(
        name,
        f"CREATE ROLE {decoy.ENGINE} LOGIN; CREATE ROLE {decoy.STRANGER} LOGIN;"
        f"GRANT ALL ON DATABASE {name} TO {decoy.ENGINE}; GRANT ALL ON SCHEMA public TO {decoy.STRANGER};"
        f"CREATE SCHEMA {decoy.OWN} AUTHORIZATION {decoy.STRANGER}; GRANT USAGE ON SCHEMA {decoy.OWN} TO PUBLIC;"
        f"ALTER ROLE {decoy.ENGINE} SET search_path = {PATHS['turned']};" + decoy.TRAP,
    )
    at_once(lambda: _plant(server.url(name).replace("perdure@", f"{decoy.STRANGER}@")))
    at_once(lambda: _migrate(login(server, name)))
    other = f"{name}_ordinary"
    server.execute("postgres", f"CREATE DATABASE {other} TEMPLATE {name}")
    path = PATHS["ordinary"]
    server.execute("postgres", f"ALTER ROLE {decoy.ENGINE} IN DATABASE {other} SET search_path = {path}")
    return {"turned": name, "ordinary": other}


async def _plant(url: str) -> None:
    connection = await asyncpg.connect(url, server_settings={"search_path": "pg_catalog"})
    try:
        known: dict[str, list[str]] = {}
        for name, given in await connection.fetch(decoy.KNOWN, sorted(decoy.names())):
            known.setdefault(name, []).append(given)
        for schema in ("public", decoy.OWN):
            await connection.execute(decoy.planted(schema, known))
    finally:
        await connection.close()


async def _migrate(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.close()


def login(server: Server, name: str, options: str = "") -> str:
    """Where the engine connects, with the search path of its login."""
    return server.url(name, options).replace("perdure@", f"{decoy.ENGINE}@")


def safe(server: Server, name: str) -> str:
    """Where a test connects, which is lured by no decoy."""
    return server.url(name, "search_path=pg_catalog")


@asynccontextmanager
async def ambush(
    server: Server, name: str, through: str | None = None, kept: KeptSessions | None = None
) -> AsyncIterator[PostgresGround]:
    """The ground on that database, empty; AssertionError if a decoy was used meanwhile.

    Its stores connect as the engine, ``through`` another URL if one is given. Where sessions are ``kept``, the
    connection past them is one of these: their path is as safe.
    """
    past = safe(server, name)
    outside = await asyncpg.connect(kept.url(past) if kept else past)
    try:
        if await outside.fetchval(decoy.CAUGHT):
            await outside.execute("ALTER SEQUENCE public.caught RESTART")
        await empty(outside, NOON)
        ground = PostgresGround(through or login(server, name), safe(server, name), outside)
        ground.hints = through is None
        yield ground
        assert not await outside.fetchval(decoy.CAUGHT), "a decoy was used"
    finally:
        await outside.close()
