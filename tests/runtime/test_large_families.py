"""Families that are wide or deep: bounded batches, no recursion, and an end to those that would have none."""

from __future__ import annotations

import asyncio

import pytest

from perdure.authoring.workflow import Workflow, workflow
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import ProcessFailed
from perdure.kernel.child import depth
from perdure.kernel.commit import Commit
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.runtime.options import WorkerOptions
from perdure.store.base import Search
from perdure.testing.faults import FaultyStore, Gate
from tests.runtime.conftest import LIMIT, Open, until_row
from tests.runtime.kin import crash, sound, statuses, until_statuses


@workflow
async def leaf(n: int) -> int:
    return n


@workflow
async def wide(n: int) -> int:
    return sum(await asyncio.gather(*(leaf.child(one) for one in range(n))))


def committed(store: FaultyStore) -> list[Commit]:
    """All that was asked to be committed by way of this store."""
    return [commit for name, commits in store.calls if name == "commit" for commit in commits]


async def test_thousands_of_children_are_started_by_bounded_commits_and_no_limit_of_histories_stops_them(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.limits.HISTORY_WARN_EVENTS", 50)
    monkeypatch.setattr("perdure.limits.HISTORY_HOLD_EVENTS", 100)
    engine, store = await opened(work=True, workflows=[wide, leaf])
    handle = await engine.start(wide, 2_000)
    assert await handle.result(LIMIT) == sum(range(2_000))
    sizes = [len(commit.starts) for commit in committed(store)]
    assert (max(sizes), sum(sizes)) == (500, 2_000)
    row = await engine.row(handle.id)
    assert (row.status, row.events) == (Status.COMPLETED, 4_001)


@workflow
async def echo(n: int) -> int:
    return n if n == 0 else 1 + await echo.child(n - 1)


@workflow
async def endless(n: int) -> int:
    return await endless.child(n + 1)


async def test_a_chain_of_children_is_as_deep_as_it_is_and_comes_back(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[echo])
    handle = await engine.start(echo, 100)
    assert await handle.result(LIMIT) == 100
    rows = await engine.store.search(Search(kind="echo", limit=1000))
    assert sorted(depth(row.id) for row in rows) == list(range(101))


async def test_a_process_that_starts_itself_for_ever_fails_at_a_bound_and_says_why(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.limits.CHILD_DEPTH", 30)
    engine, _ = await opened(work=True, workflows=[endless])
    handle = await engine.start(endless, 0)
    with pytest.raises(ProcessFailed, match=r"30 children below the first one\. If a workflow starts itself"):
        await handle.result(LIMIT)
    assert await statuses(engine, "endless") == {"failed": 31}


async def test_a_worker_with_little_room_lets_go_of_parents_so_that_their_children_have_their_turn(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.runtime.outbox.HOLD", 10_000)
    engine, _ = await opened(work=True, workflows=[echo], options=WorkerOptions(in_flight=1))
    handle = await engine.start(echo, 15)
    assert await handle.result(LIMIT) == 15
    await sound(engine)


# -- what all of them must hear ------------------------------------------------------------------------------------


@workflow
async def rests(n: int) -> int:
    await asyncio.sleep(3600)
    return n


@workflow
async def resting(n: int) -> int:
    return sum(await asyncio.gather(*(rests.child(one) for one in range(n))))


async def bedded(engine: Engine, n: int) -> Handle[int]:
    """A parent whose children are all asleep."""
    handle = await engine.start(resting, n)
    await until_statuses(engine, "rests", running=n)
    return handle


@pytest.mark.parametrize("verb", ["terminate", "restart"])
async def test_the_children_of_a_large_family_are_told_in_portions_before_the_command_is_carried_out(
    opened: Open, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr("perdure.limits.OUTBOX_RECORDS", 5)
    engine, store = await opened(work=True, workflows=[resting, rests])
    handle = await bedded(engine, 12)
    store.calls.clear()
    await getattr(handle, verb)(who="anna")
    await until_statuses(engine, "rests", cancelled=12)
    assert max(len(commit.sends) for commit in committed(store)) <= 5
    if verb == "terminate":
        assert (await engine.row(handle.id)).status is Status.CANCELLED
        assert [event.type for event in (await handle.history())[-2:]] == [EventType.HELD, EventType.TERMINATED]
    else:
        await until_statuses(engine, "rests", cancelled=12, running=12)
        assert (await engine.row(handle.id)).run == 2
    await engine.close(0)
    looker, _ = await opened()
    await sound(looker)


async def test_a_command_that_dies_while_it_tells_a_large_family_leaves_it_held_and_may_be_given_again(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.limits.OUTBOX_RECORDS", 5)
    engine, _ = await opened(work=True, workflows=[resting, rests])
    client, door = await opened()
    handle = await bedded(engine, 12)
    door.after = killed = Gate("send")
    command = asyncio.create_task(client.process(handle.id).terminate())
    await killed.reached.wait()
    command.cancel()
    row = await engine.row(handle.id)
    assert row.status is Status.HELD and b"its 12 children are told first" in (row.error or b"")
    await handle.terminate(who="anna")
    await until_statuses(engine, "rests", cancelled=12)
    killed.open.set()
    await sound(engine)


async def test_the_children_of_a_large_family_that_is_over_its_deadline_are_told_in_portions(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.limits.OUTBOX_RECORDS", 5)
    engine, store = await opened(work=True, workflows=[resting, rests])
    handle = await engine.start(resting.options(deadline=1.0), 12)
    with pytest.raises(ProcessFailed, match="ran over its deadline"):
        await handle.result(LIMIT)
    await until_statuses(engine, "rests", cancelled=12)
    assert max(len(commit.sends) for commit in committed(store)) <= 5
    await sound(engine)


@workflow
async def binds(n: int) -> int:
    return await resting.child.options(on_parent_end="terminate")(n)


async def test_the_children_of_a_large_family_that_ends_with_its_own_parent_are_told_in_portions(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.limits.OUTBOX_RECORDS", 5)
    engine, store = await opened(work=True, workflows=[binds, resting, rests])
    handle = await engine.start(binds, 12)
    await until_statuses(engine, "rests", running=12)
    store.calls.clear()
    await handle.terminate(who="anna")
    await until_statuses(engine, "rests", cancelled=12)
    await until_statuses(engine, "resting", cancelled=1)
    assert max(len(commit.sends) for commit in committed(store)) <= 5
    await sound(engine)


async def test_a_worker_that_dies_while_it_tells_a_large_family_leaves_that_to_the_next(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.limits.OUTBOX_RECORDS", 5)
    first, store = await opened(work=True, workflows=[binds, resting, rests])
    handle = await first.start(binds, 12)
    await until_statuses(first, "rests", running=12)
    [child] = await first.list(Search(kind="resting"))
    await until_row(first, child.id, lambda row: row.owner is None)
    store.after = killed = Gate("send")
    await handle.terminate(who="anna")
    await asyncio.wait_for(killed.reached.wait(), LIMIT)
    row = await first.row(child.id)
    assert (row.status, row.owner) == (Status.RUNNING, first.worker and first.worker.incarnation.id)
    await crash(first, store)
    second, _ = await opened(work=True, workflows=[binds, resting, rests])
    await until_statuses(second, "rests", cancelled=12)
    await until_statuses(second, "resting", cancelled=1)
    killed.open.set()
    await sound(second)


def turned(*, back: bool) -> Workflow[[int], int]:
    """A parent that asks for its children in another order if its code has changed."""

    @workflow(name="turned")
    async def made(n: int) -> int:
        return sum(await asyncio.gather(*(rests.child(-one if back else one) for one in range(n))))

    return made


async def test_the_children_of_a_large_family_that_begins_again_by_itself_are_told_in_portions(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.limits.OUTBOX_RECORDS", 5)
    code = turned(back=False)
    first, _ = await opened(work=True, workflows=[code, rests])
    handle = await first.start(code, 12)
    await until_statuses(first, "rests", running=12)
    await until_row(first, handle.id, lambda row: row.owner is None)
    await first.close()
    options = WorkerOptions(missing={"turned": {"restart": 1}})
    second, store = await opened(work=True, workflows=[turned(back=True), rests], options=options)
    await second.process(handle.id).signal("poke")
    await until_statuses(second, "rests", cancelled=12, running=12)
    assert (await second.row(handle.id)).run == 2
    assert max(len(commit.sends) for commit in committed(store)) <= 5
    await sound(second)
