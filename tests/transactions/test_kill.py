"""A caller is killed around its COMMIT: its own rows, the start and the signal are there together, or none of them."""

from __future__ import annotations

import asyncio
import signal

import pytest

from perdure.engine import Engine
from perdure.kernel.message import SendVerdict
from tests.kill.victim import victim
from tests.transactions.caller import by_asyncpg, by_sqlite3_immediate, done
from tests.transactions.shop import bill, greet

pytestmark = pytest.mark.kill
LIMIT = 60.0


@pytest.mark.parametrize("point", ["before", "after"])
async def test_a_caller_killed_around_its_commit_leaves_all_or_nothing(store_url: str, point: str) -> None:
    call = by_sqlite3_immediate if store_url.startswith("sqlite:") else by_asyncpg
    async with Engine(store_url, work=True, workflows=[bill, greet]) as engine:
        greeter = await engine.start(greet.options(key="greeter"))
        async with call(store_url) as caller:
            await caller.run("CREATE TABLE sale (number int PRIMARY KEY)")
            await caller.end(commit=True)
        child = await victim("tests.transactions.buyer", store_url, point)
        assert await asyncio.wait_for(child.wait(), LIMIT) == -signal.SIGKILL
        await child.close()
        async with call(store_url) as caller:
            await caller.run("INSERT INTO sale VALUES (8)")
            again = await done(engine.within(caller.connection).start(bill.options(key="sale/7"), 7))
            there = 0 if again.created else 1
            await caller.end(commit=True)
        assert there == (point == "after")
        assert await again.result(LIMIT) == "bill 7"
        heard = SendVerdict.FINISHED
        if point == "before":
            heard = await engine.process(greeter.id).signal("name", "Ann")
        assert await greeter.result(LIMIT) == "hello Ann"
        assert point == "after" or heard is SendVerdict.DELIVERED
        async with call(store_url) as caller:
            with pytest.raises(Exception, match=r"(?i)unique"):
                await caller.run("INSERT INTO sale VALUES (8)")
        async with call(store_url) as caller:
            if point == "before":
                await caller.run("INSERT INTO sale VALUES (7)")
            else:
                with pytest.raises(Exception, match=r"(?i)unique"):
                    await caller.run("INSERT INTO sale VALUES (7)")
