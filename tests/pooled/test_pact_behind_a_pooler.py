"""Behind a pooler in transaction mode a step with a transaction keeps its server connection until its end."""

from __future__ import annotations

from perdure.engine import Engine
from tests.runtime.account import FLOWS, Account, booking, hooks

LIMIT = 60.0


async def test_effects_and_results_by_way_of_the_pooler_are_each_there_once(pooled_url: str) -> None:
    hooks.clear()
    async with Engine(pooled_url, work=True, workflows=FLOWS) as engine:
        account = Account(pooled_url)
        await account.open()
        names = [f"{n:02}" for n in range(30)]
        handles = await engine.start_many(booking, [("postgres", name) for name in names])
        assert [await handle.result(LIMIT) for handle in handles] == names
        assert await account.booked() == names
        assert await account.keys() == len(names)
