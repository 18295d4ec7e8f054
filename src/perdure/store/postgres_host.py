"""The hosts of one database: asked all at once, and the first that may be written to is taken.

One after the other would not do: the machine of a primary that has just gone dark keeps a caller waiting for seconds.
"""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

from perdure.store.postgres_url import Address


async def reached(address: Address, **settings: Any) -> asyncpg.Connection[asyncpg.Record]:
    """A connection to the first host that fits ``target_session_attrs``; raises what the driver raises.

    OSError if hosts answer and none of them fits: no standby has been promoted yet.
    """
    if len(address.dsns) == 1:
        return await _connected(address.dsns[0], settings)
    asked = {asyncio.ensure_future(_connected(dsn, settings)) for dsn in address.dsns}
    troubles: list[Exception] = []
    try:
        while asked:
            answered, asked = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            for one in answered:
                trouble = one.exception()
                if trouble is None:
                    asked |= answered - {one}
                    return one.result()
                if not isinstance(trouble, Exception):
                    raise trouble
                troubles.append(trouble)
    finally:
        for one in asked:
            one.cancel()
            one.add_done_callback(_dropped)
    # What a server says is worth more to people than that another could not be reached.
    raise next((one for one in troubles if isinstance(one, asyncpg.PostgresError)), troubles[-1])


async def _connected(dsn: str, settings: dict[str, Any]) -> asyncpg.Connection[asyncpg.Record]:
    try:
        return await asyncpg.connect(dsn, **settings)
    except asyncpg.TargetServerAttributeNotMatched as error:
        raise OSError("no host of the URL may be written to now; a standby must be promoted first") from error


def _dropped(connecting: asyncio.Future[asyncpg.Connection[asyncpg.Record]]) -> None:
    """Close a connection that came too late to be taken."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().terminate()
