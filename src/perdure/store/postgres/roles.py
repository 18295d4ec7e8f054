"""The roles of a PostgreSQL store: they let logins of clients do less than those of workers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import asyncpg

from perdure.errors import StoreError
from perdure.store.postgres.connection import connect, ended, on_a_fixed_path
from perdure.store.postgres.error import translated
from perdure.store.postgres.schema import queries
from perdure.store.postgres.url import Address

ROLES = ("look", "start", "signal", "operate", "work")
"""Each is a role of the database with the schema's name before it: ``perdure_look``."""

_CLOSED = "closed_"


async def narrowed(connection: asyncpg.Connection[asyncpg.Record], address: Address) -> Mapping[str, str]:
    """The replacements of queries whose functions the login may not call; none for workers and the owner."""
    sql = queries(address.schema)
    names = [name.removeprefix(_CLOSED) for name in sql if name.startswith(_CLOSED) and name != "closed_doors"]
    async with on_a_fixed_path(connection, address):
        closed = await connection.fetch(sql["closed_doors"], names)
    return MappingProxyType({row["name"]: sql[_CLOSED + row["name"]] for row in closed})


async def make_roles(address: Address) -> list[str]:
    """Create the missing roles and grant each its rights; raises StoreError. The answer is their names."""
    try:
        connection = await connect(address, "migration")
    except Exception as error:
        raise translated(error, address.shown) from error
    sql = queries(address.schema)
    try:
        async with connection.transaction():
            await connection.execute(sql["fixed_path"])
            await connection.execute(sql["create_roles"])
            await connection.execute(sql["grant_roles"])
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreError(
            f"{address.shown}: {error}. Creating roles needs CREATEROLE; granting rights needs the schema's owner. "
            f"Run this with a login that may create roles, then run `perdure migrate --roles` as the owner:\n"
            + statements(address.schema)
        ) from error
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise translated(error, address.shown) from error
    finally:
        await ended(connection)
    return [f"{address.schema}_{role}" for role in ROLES]


def statements(schema: str) -> str:
    """The statements for a login with more rights."""
    made = [f'CREATE ROLE "{schema}_{role}" NOLOGIN;' for role in ROLES]
    return "\n".join([*made, f'GRANT "{schema}_look" TO "{schema}_operate";'])
