"""The schema of a PostgreSQL store: its name put into the SQL, and its migrations applied under a lock.

Migrations make types and tables. The functions and views are no part of any of them: all are installed again, as this
Perdure has them, in the transaction of the last migration, so that a changed function needs no file of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import asyncpg

from perdure.errors import StoreUnavailable
from perdure.store.migrate import Migration, pending, steps
from perdure.store.postgres.connection import connect, ended
from perdure.store.postgres.error import translated
from perdure.store.postgres.url import Address
from perdure.store.query import SQL, load

LOCK_TRIES = 60
LOCK_SECONDS = 1.0
"""How often a step is tried while another session locks a table that it needs, and the time between the tries."""

_SCHEMA = re.compile(r"\bperdure(?=\.|;)")
_CHANNEL = re.compile(r"'perdure_(?=due'|done'|told'|published')")
OnConnection = Callable[[Any], Awaitable[None]]


class Prepared(NamedTuple):
    """The number of the schema, and a connection for writes; None if the schema was not up to date."""

    reached: int
    connection: asyncpg.Connection[asyncpg.Record] | None


def named(sql: str, schema: str) -> str:
    """SQL written for the schema ``perdure``, turned to another one; notification channels carry its name too."""
    return _CHANNEL.sub(f"'{schema}_", _SCHEMA.sub(f'"{schema}"', sql))


@cache
def queries(schema: str) -> Mapping[str, str]:
    """The named queries for a schema of that name."""
    return MappingProxyType({name: named(sql, schema) for name, sql in load("postgres").items()})


def script(step: Migration, schema: str) -> str:
    """All statements of one migration."""
    return named(step.sql, schema)


def functions(schema: str) -> str:
    """The statements that install all functions and views, in the order in which they need each other."""
    folder = SQL / "postgres" / "functions"
    lines = folder.joinpath("order.txt").read_text(encoding="utf-8").split("\n")
    verbs = [line for line in lines if line and not line.startswith("#")]
    return named("\n".join(folder.joinpath(f"{verb}.sql").read_text(encoding="utf-8") for verb in verbs), schema)


def schema_lock(schema: str) -> int:
    """The advisory lock under which a schema of that name is changed."""
    digest = hashlib.blake2b(f"perdure schema {schema}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


async def prepare(address: Address, *, migrate: bool, found: OnConnection | None = None) -> Prepared:
    """Bring the schema up to date, or find it so. Many may do this at once, and any may be killed at any point.

    ``found`` is then called with the same connection. The schema may be newer than this Perdure, if this Perdure can
    still work with it.
    """
    try:
        connection = await connect(address, "writes")
    except Exception as error:
        raise translated(error, address.shown) from error
    tries, kept, as_found = 0, False, True
    try:
        while True:
            reached = await _reached(connection, address.schema)
            oldest = await _oldest(connection, address.schema) if reached > len(steps("postgres")) else None
            if not pending("postgres", reached, migrate=migrate, oldest=oldest):
                break
            if as_found:
                # A connection with a name of its own migrates, and is not used afterwards: it saw the tables change.
                as_found = False
                await ended(connection)
                connection = await connect(address, "migration")
            try:
                await _apply_next(connection, address.schema)
            except asyncpg.LockNotAvailableError:
                # Another session locks a table that the step needs: sessions that wait behind us go first.
                tries += 1
                if tries == LOCK_TRIES:
                    raise
                await asyncio.sleep(LOCK_SECONDS)
        if found is not None:
            await found(connection)
        kept = as_found
        return Prepared(reached, connection if kept else None)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise translated(error, address.shown) from error
    finally:
        if not kept:
            await ended(connection)


async def _oldest(connection: asyncpg.Connection[asyncpg.Record], schema: str) -> int | None:
    """The lowest schema number whose Perdure may use this database; None if the database does not say."""
    try:
        oldest: int | None = await connection.fetchval(queries(schema)["oldest_reader"])
    except asyncpg.UndefinedTableError:
        return None
    return oldest


async def _reached(connection: asyncpg.Connection[asyncpg.Record], schema: str) -> int:
    sql = queries(schema)
    if not await connection.fetchval(sql["there_is_a_schema"], f'"{schema}".migration'):
        return 0
    reached: int = await connection.fetchval(sql["last_migration"])
    return reached


async def _lock_what_is_not_there(connection: asyncpg.Connection[asyncpg.Record], schema: str) -> None:
    """Let one opener at a time make the schema. Any session can take this lock, so nobody waits for it forever."""
    sql = queries(schema)
    await connection.execute(sql["limit_lock"])
    try:
        await connection.fetchval(sql["lock_new_schema"], schema_lock(schema))
    except asyncpg.LockNotAvailableError as error:
        raise StoreUnavailable(
            f"for a minute another session has held the lock under which the schema {schema!r} is made. If no program "
            f"migrates now, find the session with the advisory lock {schema_lock(schema)} in pg_locks, and end it"
        ) from error
    await connection.execute(sql["unlimit_lock"])


async def _apply_next(connection: asyncpg.Connection[asyncpg.Record], schema: str) -> None:
    """Apply the next step in a transaction of its own, or all to a new schema: nobody finds it half made.

    Nothing is left to apply if another opener did it while we waited for the lock.
    """
    sql = queries(schema)
    async with connection.transaction():
        await connection.execute(sql["fixed_path"])
        await connection.execute(sql["limit_migration"])
        if not await _reached(connection, schema):
            await _lock_what_is_not_there(connection, schema)
        await connection.execute(sql["create_schema"])
        await connection.execute(sql["lock_schema"])
        done: int = await connection.fetchval(sql["last_migration"])
        left = steps("postgres")[done:]
        together = left[:1] if done else left
        if together:
            await connection.execute(sql["limit_waiting"])
        for step in together:
            await connection.execute(script(step, schema))
            await connection.execute(sql["record_migration"], step.number, step.name)
        if together and together[-1] is left[-1]:
            await connection.execute(functions(schema))
            await connection.execute(sql["grant_roles"])
        # If we die here the whole step is rolled back and the lock is free: the next opener applies it.
