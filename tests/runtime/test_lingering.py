"""Lingering: a process with a long history that has heard a message stays in hand for a moment, and goes then."""

from __future__ import annotations

import asyncio

import pytest

from perdure import WorkerOptions, limits
from perdure.authoring.workflow import receive, set_state, workflow
from perdure.client.handle import Handle
from perdure.engine import Engine
from tests.runtime.conftest import LIMIT, Open, until_row

LONG = 10


@pytest.fixture(autouse=True)
def _short_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LONG_HISTORY_EVENTS", LONG)
    monkeypatch.setattr(limits, "LONG_HISTORY_HOLD_SECONDS", LIMIT)


@workflow
async def counting(messages: int) -> int:
    for n in range(messages):
        assert await receive("number", int) == n
        set_state(n)
    return messages


async def heard(engine: Engine, handle: Handle[int], numbers: range) -> None:
    """Send one after the other, each when the one before has been heard."""
    for n in numbers:
        await handle.signal("number", n)
        async with asyncio.timeout(LIMIT):
            while (await handle.status()).state != n:
                await asyncio.sleep(0.001)


async def in_hand(engine: Engine, handle: Handle[int]) -> bool:
    return (await engine.row(handle.id)).owner is not None


async def test_a_long_history_that_hears_message_after_message_is_claimed_once(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[counting])
    handle = await engine.start(counting, LONG + 20)
    await heard(engine, handle, range(LONG))
    claims = engine.metrics()["claims"]
    assert await in_hand(engine, handle)
    await heard(engine, handle, range(LONG, LONG + 20))
    assert await handle.result(LIMIT) == LONG + 20
    assert engine.metrics()["claims"] == claims


async def test_a_short_history_is_let_go_at_once_and_claimed_for_each_message(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[counting])
    handle = await engine.start(counting, LONG)
    await heard(engine, handle, range(LONG - 2))
    assert not await in_hand(engine, handle)
    assert engine.metrics()["claims"] == LONG - 2


async def test_a_process_that_hears_nothing_more_is_let_go_after_a_moment(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LONG_HISTORY_HOLD_SECONDS", 0.05)
    engine, _ = await opened(work=True, workflows=[counting])
    handle = await engine.start(counting, LONG + 1)
    await heard(engine, handle, range(LONG))
    await until_row(engine, handle.id, lambda row: row.owner is None)
    await handle.signal("number", LONG)
    assert await handle.result(LIMIT) == LONG + 1


async def test_a_worker_that_stops_hands_back_at_once_who_lingers(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[counting])
    handle = await engine.start(counting, LONG + 1)
    await heard(engine, handle, range(LONG))
    assert await in_hand(engine, handle)
    await engine.close()
    client, _ = await opened(work=False, workflows=[counting])
    assert not await in_hand(client, handle)
    await opened(work=True, workflows=[counting])
    seen = client.handle_of(await client.row(handle.id))
    await seen.signal("number", LONG)
    assert await seen.result(LIMIT) == LONG + 1


async def test_who_lingers_leaves_its_room_to_others(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[counting], options=WorkerOptions(in_flight=1))
    client, _ = await opened(work=False, workflows=[counting])
    handle = await engine.start(counting, LONG + 1)
    await heard(engine, handle, range(LONG))
    assert await in_hand(engine, handle)
    assert await (await client.start(counting, 0)).result(LIMIT) == 0
    assert await in_hand(engine, handle)
