"""Families that are wide or deep: bounded batches, no recursion, and an end to those that would have none."""

from __future__ import annotations

import asyncio

import pytest

from perdure.authoring.workflow import workflow
from perdure.errors import ProcessFailed
from perdure.kernel.child import depth
from perdure.kernel.process import Status
from perdure.runtime.pace import Pace
from perdure.store.base import Search
from tests.runtime.conftest import LIMIT, Open
from tests.runtime.kin import sound, statuses


@workflow
async def leaf(n: int) -> int:
    return n


@workflow
async def wide(n: int) -> int:
    return sum(await asyncio.gather(*(leaf.child(one) for one in range(n))))


async def test_f45_thousands_of_children_are_started_by_bounded_commits_and_no_limit_of_histories_stops_them(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.limits.HISTORY_WARN_EVENTS", 50)
    monkeypatch.setattr("perdure.limits.HISTORY_HOLD_EVENTS", 100)
    engine, store = await opened(work=True, workflows=[wide, leaf])
    handle = await engine.start(wide, 2_000)
    assert await handle.result(LIMIT) == sum(range(2_000))
    sizes = [len(commit.starts) for name, commits in store.calls if name == "commit" for commit in commits]
    assert (max(sizes), sum(sizes)) == (500, 2_000)
    row = await engine.row(handle.id)
    assert (row.status, row.events) == (Status.COMPLETED, 4_001)


@workflow
async def echo(n: int) -> int:
    return n if n == 0 else 1 + await echo.child(n - 1)


@workflow
async def endless(n: int) -> int:
    return await endless.child(n + 1)


async def test_f45_a_chain_of_children_is_as_deep_as_it_is_and_comes_back(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[echo])
    handle = await engine.start(echo, 100)
    assert await handle.result(LIMIT) == 100
    rows = await engine.store.search(Search(kind="echo", limit=1000))
    assert sorted(depth(row.id) for row in rows) == list(range(101))


async def test_f45_a_process_that_starts_itself_for_ever_fails_at_a_bound_and_says_why(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.limits.CHILD_DEPTH", 30)
    engine, _ = await opened(work=True, workflows=[endless])
    handle = await engine.start(endless, 0)
    with pytest.raises(ProcessFailed, match=r"30 children below the first one\. If a workflow starts itself"):
        await handle.result(LIMIT)
    assert await statuses(engine, "endless") == {"failed": 31}


async def test_f45_a_worker_with_little_room_lets_go_of_parents_so_that_their_children_have_their_turn(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.runtime.outbox.HOLD", 10_000)
    engine, _ = await opened(work=True, workflows=[echo], pace=Pace(in_flight=1))
    handle = await engine.start(echo, 15)
    assert await handle.result(LIMIT) == 15
    await sound(engine)
