"""Looks at an event stream again and again, until it is as a test wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from perdure.client.streams import EventStreamView
from perdure.engine import Engine
from tests.runtime.conftest import A_MOMENT, LIMIT


async def until_view(engine: Engine, true: Callable[[EventStreamView], bool]) -> EventStreamView:
    """Look at the stream ``audit`` until it is as wanted."""
    async with asyncio.timeout(LIMIT):
        while not true(view := await engine.streams.state("audit")):
            await asyncio.sleep(A_MOMENT)
    return view
