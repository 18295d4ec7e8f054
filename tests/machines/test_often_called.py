"""A machine that is called often: nothing is read for the answers that our own worker gives."""

from __future__ import annotations

import asyncio

from tests.machines.account import Account
from tests.runtime.conftest import Open


async def test_the_answers_of_our_own_worker_are_told_and_not_looked_up(opened: Open, store_url: str) -> None:
    engine, store = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    assert await ann.call(Account.deposit, 1) == 1
    store.calls.clear()
    sums = await asyncio.gather(*(ann.call(Account.deposit, 1) for _ in range(30)))
    assert sorted(sums) == list(range(2, 32))
    reads = [name for name, _ in store.calls].count("history")
    # PostgreSQL may notify us of a commit before it has answered it: then the caller looks at once.
    assert reads == 0 if store_url.startswith("sqlite") else reads <= 30
