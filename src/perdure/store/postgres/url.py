"""The address of a PostgreSQL store: the URL taken apart, and the first of its hosts that accepts writes.

All hosts are asked at once, not one after the other: a primary whose machine has just died keeps a caller waiting for
seconds.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes, urlencode, urlsplit

import asyncpg
from msgspec import Struct

from perdure.errors import InvalidUrl
from perdure.store.postgres.driver_loop import DriverLoop

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_BEGINNING = re.compile(r"postgres(ql)?://", re.IGNORECASE)
_EXAMPLE = "write it as postgresql://user:password@host:5432/database?schema=perdure&pooler=transaction"


class Address(Struct, frozen=True):
    """Where a store lies. ``dsns`` are for the driver, one for each host that the URL names.

    ``pooled`` says that a transaction pooler stands between.
    """

    dsns: tuple[str, ...]
    schema: str
    pooled: bool
    shown: str


def address_of(url: str) -> Address:
    """Take a store's URL apart; InvalidUrl if it cannot be understood."""
    try:
        if "\0" in unquote_to_bytes(url).decode("utf-8", "replace"):
            raise ValueError
        parts = urlsplit(url)
        user, at, hosts = parts.netloc.rpartition("@")
        if "@" in user and "," in user:  # a second login before another host: the driver would quote it
            raise ValueError
        shown = [_shown(host) for host in hosts.split(",")]
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:  # whose text may quote the password
        raise InvalidUrl(
            "the store's URL cannot be read: look at its port and brackets, and at special characters in the password, "
            f"which are written as % and two digits; {_EXAMPLE}"
        ) from None
    if not _BEGINNING.match(url):
        raise InvalidUrl(f"the store's URL does not begin with postgresql://; {_EXAMPLE}")
    if not parts.path.strip("/") and not any(name in ("dbname", "database") for name, _ in options):
        raise InvalidUrl(f"the store's URL names no database; {_EXAMPLE}")
    own = {"schema": "perdure", "pooler": ""}
    left = []
    for name, value in options:
        if name in own:
            own[name] = value
        else:
            left.append((name, value))
    if not _SCHEMA.fullmatch(own["schema"]):
        raise InvalidUrl("schema= takes at most 40 lower-case letters, digits and _, and no digit first; " + _EXAMPLE)
    if own["pooler"] not in ("", "transaction"):
        raise InvalidUrl("pooler= knows only the value transaction; leave it out for a direct connection; " + _EXAMPLE)
    if len(shown) > 1 and all(name != "target_session_attrs" for name, _ in left):
        left.append(("target_session_attrs", "read-write"))
    rest = f"{parts.path}{'?' + urlencode(left) if left else ''}"
    dsns = tuple(f"postgresql://{user}{at}{host}{rest}" for host in hosts.split(","))
    return Address(dsns, own["schema"], own["pooler"] == "transaction", f"{','.join(shown)}{parts.path}")


def _shown(host: str) -> str:
    """A host and its port for people; ValueError if they cannot be read."""
    parts = urlsplit(f"//{host}")
    (parts.hostname or "").encode("idna")
    return f"{parts.hostname or 'the local socket'}{f':{parts.port}' if parts.port else ''}"


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
    # A server's own error helps people more than the news that another host could not be reached.
    raise next((one for one in troubles if isinstance(one, asyncpg.PostgresError)), troubles[-1])


async def _connected(dsn: str, settings: dict[str, Any]) -> asyncpg.Connection[asyncpg.Record]:
    loop = asyncio.get_running_loop()
    seen: Any = DriverLoop(loop)
    try:
        connection = await asyncpg.connect(dsn, **{**settings, "loop": seen})
    except asyncpg.TargetServerAttributeNotMatched as error:
        raise OSError("no host of the URL may be written to now; a standby must be promoted first") from error
    connection._loop = loop  # by which asyncio finds the task that is running
    return connection


def _dropped(connecting: asyncio.Future[asyncpg.Connection[asyncpg.Record]]) -> None:
    """Close a connection that came too late to be taken."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().terminate()
