"""The roles of a PostgreSQL store: what a login may do that is no worker's, and which role it lacks for the rest."""

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
    """What stands in for the queries whose functions the login may not call; nothing for workers and the owner."""
    sql = queries(address.schema)
    names = [name.removeprefix(_CLOSED) for name in sql if name.startswith(_CLOSED) and name != "closed_doors"]
    async with on_a_fixed_path(connection, address):
        closed = await connection.fetch(sql["closed_doors"], names)
    return MappingProxyType({row["name"]: sql[_CLOSED + row["name"]] for row in closed})


async def make_roles(address: Address) -> list[str]:
    """Create the roles that are missing and let each do its own; raises StoreError. The answer is their names."""
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
            f"{address.shown}: {error}. Who makes roles needs CREATEROLE, and who grants rights must own the schema. "
            f"Have somebody who may create roles run this, then run `perdure migrate --roles` as the owner:\n"
            + statements(address.schema)
        ) from error
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise translated(error, address.shown) from error
    finally:
        await ended(connection)
    return [f"{address.schema}_{role}" for role in ROLES]


def statements(schema: str) -> str:
    """What somebody with more rights may run instead."""
    made = [f'CREATE ROLE "{schema}_{role}" NOLOGIN;' for role in ROLES]
    return "\n".join([*made, f'GRANT "{schema}_look" TO "{schema}_operate";'])
