"""The order of sending: signals of one engine to one process arrive in it, whoever has the row locked meanwhile."""

from __future__ import annotations

import asyncio

import asyncpg

from perdure.authoring.workflow import receive, workflow
from perdure.kernel.names import id_text
from tests.runtime.conftest import engines_on, until
from tests.store.ground_postgres import LOCK


@workflow
async def numbered(messages: int) -> list[int]:
    return [await receive("number", int) for _ in range(messages)]


async def test_signals_sent_while_somebody_has_the_row_locked_arrive_in_the_order_of_sending(postgres_url: str) -> None:
    async with engines_on(postgres_url) as opened:
        engine, _ = await opened(work=False, workflows=[numbered])
        handle = await engine.start(numbered, 60)
        outside = await asyncpg.connect(postgres_url)
        try:
            async with outside.transaction():
                await outside.execute(LOCK, [id_text(handle.id_bytes)])
                sent = [asyncio.create_task(handle.signal("number", n)) for n in range(30)]
                await until(lambda: engine.metrics()["commits_busy"])
            sent += [asyncio.create_task(handle.signal("number", n)) for n in range(30, 60)]
            await asyncio.gather(*sent)
        finally:
            await outside.close()
        await opened(work=True, workflows=[numbered])
        assert await handle.result(20) == list(range(60))


async def test_a_locked_row_delays_no_signal_to_another_process(postgres_url: str) -> None:
    async with engines_on(postgres_url) as opened:
        engine, _ = await opened(work=False, workflows=[numbered])
        locked, free = [await engine.start(numbered, 1) for _ in range(2)]
        outside = await asyncpg.connect(postgres_url)
        try:
            async with outside.transaction():
                await outside.execute(LOCK, [id_text(locked.id_bytes)])
                waits = asyncio.create_task(locked.signal("number", 1))
                await until(lambda: engine.metrics()["commits_busy"])
                await free.signal("number", 1)
                assert not waits.done()
            await waits
        finally:
            await outside.close()
