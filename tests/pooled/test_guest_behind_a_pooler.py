"""Behind a pooler in transaction mode a caller's commit wakes nobody; workers find by looking what it has brought."""

from __future__ import annotations

import asyncpg
import psycopg

from perdure.engine import Engine
from tests.transactions.caller import address
from tests.transactions.shop import bill, greet

LIMIT = 30.0


async def test_a_transaction_by_way_of_the_pooler_starts_and_signals(pooled_url: str) -> None:
    async with Engine(pooled_url, work=True, workflows=[bill, greet]) as engine:
        direct = await asyncpg.connect(address(pooled_url), statement_cache_size=0)
        async with direct.transaction():
            handle = await engine.within(direct).start(greet)
            await engine.within(direct).signal(handle.id, "name", "Ann")
        await direct.close()
        assert await handle.result(timeout=LIMIT) == "hello Ann"
        with psycopg.connect(address(pooled_url), prepare_threshold=None) as connection:
            billed = engine.within(connection).start(bill, 7)
        assert await billed.result(timeout=LIMIT) == "bill 7"
