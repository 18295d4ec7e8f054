"""Queues at the terminal: what waits and runs, the limits, and who has blocked what, on both stores."""

from __future__ import annotations

import asyncio

from perdure import Engine, Search, step, workflow
from tests.cli.conftest import Working
from tests.cli.terminal import Terminal


@step(queue="bank")
async def pay_cents(cents: int) -> int:
    return cents


@workflow
async def pays_cents(cents: int) -> int:
    return await pay_cents(cents)


async def one_waits(engine: Engine) -> None:
    """One task waits in a blocked queue."""
    await engine.queues.block("bank", who="ana", why="no money")
    async with Engine(engine.store.url, work=True, workflows=[pays_cents], queues=[]) as shop:
        await shop.start(pays_cents.options(key="B-1"), 7)
        while not await shop.list(Search(kind="@bank")):
            await asyncio.sleep(0.01)


def test_a_queue_is_limited_blocked_and_seen(terminal: Terminal, working: Working) -> None:
    working(one_waits)
    said = terminal("queue", "ls")
    assert said.code == 0
    assert said.has("queue waiting running oldest workers limits blocked")
    assert said.has("bank 1 0 ", " 0 none by ana, ") and said.has(": no money")
    assert terminal("queue", "ls", "--unpolled").has("bank 1 0 ", " 0 none by ana, "), "no live worker serves it"
    said = terminal("queue", "limit", "bank", "--concurrency", "5", "--rate", "10", "--per", "2m", "--why", "cheaper")
    assert said.has("bank 1 0 ", " 0 of 5 at once, 10 in 2 min by ana, ")
    assert terminal("queue", "unblock", "bank", "--who", "bob").code == 0
    [bank] = terminal("queue", "ls", "--json").json
    assert (bank["name"], bank["concurrency"], bank["rate"], bank["per"], bank["blocked_at"], bank["who"]) == (
        "bank", 5, 10, 120.0, None, "bob",
    )  # fmt: skip
    assert (bank["waiting"], bank["origin"]) == (1, "cli")


def test_a_task_that_waits_says_who_has_blocked_its_queue(terminal: Terminal, working: Working) -> None:
    working(one_waits)
    assert terminal("ps", "--kind", "@bank").has("queue bank is blocked by ana: no money")
    [task] = terminal("ps", "--kind", "@bank", "--json").json
    assert terminal("show", task["id"]).has("queue bank is blocked by ana: no money")


def test_without_queues_there_is_nothing_to_see(terminal: Terminal, working: Working) -> None:
    async def nothing(engine: Engine) -> None:
        """Nothing waits."""

    working(nothing)
    assert terminal("queue", "ls").has("no queue has a limit, and nothing waits in any")
    assert terminal("queue", "ls", "--unpolled").has("every queue in which steps wait is served by a live worker")


def test_what_makes_no_sense_is_refused_with_what_to_do(terminal: Terminal, working: Working) -> None:
    working(one_waits)
    said = terminal("queue", "limit", "bank", "--concurrency", "0")
    assert said.code == 2
    assert "Give a whole number from 1" in said.err
    said = terminal("queue", "limit", "bank", "--concurrency", "3", "--per", "2m")
    assert said.code == 2
    assert "there is no rate=. Give both." in said.err
    [bank] = terminal("queue", "ls", "--json").json
    assert bank["concurrency"] is None
