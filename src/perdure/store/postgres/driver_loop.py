"""The event loop as the PostgreSQL driver sees it: hosts are looked up in threads of their own.

An event loop looks a host up in its few threads, in which a step that calls ``asyncio.to_thread`` may hang: then no
connection would ever come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from perdure.futures import looked_up


class DriverLoop:
    """Does what ``loop`` does, but knows another way to connect to a host by its name."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)

    async def create_connection(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to the first address of the host that answers, as the event loop does; raises OSError."""
        if options.get("ssl"):
            options.setdefault("server_hostname", host)  # the name that the certificate must bear
        errors: list[OSError] = []
        for address in await looked_up(host, port):
            try:
                return await self.loop.create_connection(protocol, address, port, **options)
            except OSError as error:
                errors.append(error)
        raise errors[0] if len(errors) == 1 else OSError("; ".join(map(str, errors)))
