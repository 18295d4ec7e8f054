"""A process is given another version of its code, another priority or another deadline, whoever holds it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import json

from perdure import limits
from perdure.authoring.workflow import Workflow, receive, workflow
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import IllegalMove, InvalidInput, InvalidKey, ProcessBroken, ProcessFailed, ProcessNotFound
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.runtime.options import WorkerOptions
from perdure.turns.patches import patched
from tests.runtime.conftest import LIMIT, Open, until, until_row
from tests.runtime.errand import act, done, forget, gates, keys, sound


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    monkeypatch.setattr(limits, "HANDOVER_ALONE_SECONDS", 0.0)  # nobody waits for newer code here: see test_handover.py


def trip(version: str, last: str, first: str = "pack") -> Workflow[Any, Any]:
    """A version of a workflow that does one thing, waits for a signal, and does another."""

    @workflow(name="trip", version=version)
    async def flow() -> str:
        ways = [await act(first), "by patch" if patched("fee") else "as ever"]
        await receive("go")
        return ", ".join(map(str, [*ways, await act(last)]))

    return flow


@workflow
async def guest(who: str) -> None:
    await act(who)


OLD, NEW, OTHER = trip("1", "by train"), trip("2", "by air"), trip("3", "by air", first="leave")


async def half_way(engine: Engine, flow: Workflow[Any, Any] = OLD) -> Handle[Any]:
    handle = await engine.start(flow)
    await until_row(engine, handle.id, lambda row: row.owner is None and row.awaiting == "signal go")
    return handle


async def told(handle: Handle[Any], type: EventType) -> list[dict[str, Any]]:
    return [json.decode(event.payload or b"") for event in await handle.history() if event.type is type]


# -- another version --------------------------------------------------------------------------------------------------


async def test_rule_22_a_process_whose_code_is_gone_is_moved_to_a_version_that_is_hosted_and_goes_on(
    opened: Open,
) -> None:
    before, _ = await opened(work=True, workflows=[OLD])
    stranded = await half_way(before)
    await before.close()
    worker, store = await opened(work=True, workflows=[NEW])
    handle = worker.process(stranded.id)
    await handle.signal("go")
    await handle.move("2", who="ann", why="the old one is gone")
    assert await handle.result(LIMIT) == "pack 1, by patch, by air 1"
    assert await told(handle, EventType.VERSION_MOVED) == [
        {"who": "ann", "why": "the old one is gone", "origin": "client", "to": "2", "was": "1"}
    ]
    assert await sound(worker, store, handle) is Status.COMPLETED


async def test_a_worker_that_holds_a_moved_process_stops_its_steps_and_another_runs_them_under_their_keys(
    opened: Open,
) -> None:
    old, _ = await opened(work=True, workflows=[OLD])
    new, store = await opened(work=True, workflows=[trip("2", "by train")])
    handle = await half_way(old)
    gates["by train"] = asyncio.Event()
    await handle.signal("go")
    await until(lambda: "by train" in done)
    await new.process(handle.id).move("2")
    await until(lambda: "by train stopped" in done and done.count("by train") == 2)
    gates["by train"].set()
    assert await handle.result(LIMIT) == "pack 1, by patch, by train 2"
    assert len(set(keys["by train"])) == 1
    assert await sound(new, store, handle) is Status.COMPLETED


async def test_a_process_in_memory_goes_on_with_the_other_code_of_the_same_worker(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[OLD, NEW])
    handle = await half_way(engine)
    await handle.move("2")
    await handle.signal("go")
    assert await handle.result(LIMIT) == "pack 1, by patch, by air 1"
    assert done == ["pack", "by air"]


async def test_a_version_that_nobody_hosts_is_refused_unless_it_is_forced(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[OLD])
    handle = await half_way(engine)
    with pytest.raises(
        IllegalMove, match=r"no live worker hosts workflow 'trip' version '2'\. Live workers host .*'1'"
    ):
        await handle.move("2")
    assert (await engine.row(handle.id)).code == "1"
    await handle.move("2", force=True)
    later, _ = await opened(work=True, workflows=[NEW])
    await handle.signal("go")
    assert await later.process(handle.id).result(LIMIT) == "pack 1, by patch, by air 1"


async def test_a_process_that_breaks_by_its_move_is_moved_back_and_goes_on_where_it_was(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[OLD, OTHER])
    handle = await half_way(engine)
    await handle.move("3")
    with pytest.raises(ProcessBroken, match="leave"):
        await handle.result(LIMIT)
    await handle.move("1", who="ann")
    assert await sound(engine, store, handle) is Status.BROKEN
    await handle.retry()
    await handle.signal("go")
    assert await handle.result(LIMIT) == "pack 1, by patch, by train 1"


async def test_a_delayed_process_that_is_moved_waits_for_its_time_and_begins_with_the_other_code(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[OLD, NEW])
    handle = await engine.start(OLD.options(delay=3600))
    due_at = (await engine.row(handle.id)).due_at
    await handle.move("2")
    row = await engine.row(handle.id)
    assert (row.code, row.due_at, row.opened_at) == ("2", due_at, None)
    await handle.signal("go")
    assert await handle.result(LIMIT) == "pack 1, by patch, by air 1"


# -- another priority, another deadline -------------------------------------------------------------------------------


async def test_of_those_that_wait_for_a_worker_the_one_that_was_given_a_lower_number_comes_first(opened: Open) -> None:
    client, _ = await opened()
    handles = [await client.start(guest, who) for who in ("last", "ordinary", "first")]
    await handles[0].set_priority(9)
    await handles[2].set_priority(0, who="ann", why="the customer waits")
    [event] = await told(handles[2], EventType.PRIORITY_SET)
    assert event == {"who": "ann", "why": "the customer waits", "origin": "client", "to": 0, "was": 4}
    worker, _ = await opened(work=True, workflows=[guest], options=WorkerOptions(in_flight=1))
    for handle in handles:
        await worker.process(handle.id).result(LIMIT)
    assert done == ["first", "ordinary", "last"]


async def test_a_process_in_memory_that_got_a_priority_goes_on_from_its_history(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[OLD])
    handle = await half_way(engine)
    await handle.set_priority(9)
    await handle.signal("go")
    assert await handle.result(LIMIT) == "pack 1, by patch, by train 1"
    assert await sound(engine, store, handle) is Status.COMPLETED


@pytest.mark.parametrize("held", [False, True])
async def test_a_process_fails_at_the_deadline_that_it_was_given(opened: Open, held: bool) -> None:
    engine, _ = await opened(work=True, workflows=[OLD])
    handle = await half_way(engine)
    if held:
        await handle.hold()
    await handle.set_deadline(timedelta(seconds=0.1), who="ann")
    with pytest.raises(ProcessFailed, match="ran over its deadline"):
        await handle.result(LIMIT)
    [event] = await told(handle, EventType.DEADLINE_SET)
    assert event["was"] is None and event["who"] == "ann"


async def test_a_deadline_in_a_workers_hand_is_put_off_and_taken_away(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[OLD])
    gates["pack"] = asyncio.Event()
    handle = await engine.start(OLD.options(deadline=60))
    await until(lambda: "pack" in done)
    later = datetime.now(UTC) + timedelta(days=2)
    await handle.set_deadline(later)
    assert (await handle.status()).deadline == later
    await until(lambda: done.count("pack") == 2)
    await handle.set_deadline(None)
    assert (await handle.status()).deadline is None
    gates["pack"].set()
    await handle.signal("go")
    assert (await handle.result(LIMIT)).endswith("by train 1")


# -- what is refused --------------------------------------------------------------------------------------------------


async def test_what_is_no_version_no_priority_and_no_deadline_is_refused_at_the_door(opened: Open) -> None:
    client, _ = await opened(workflows=[OLD])
    handle = await client.start(OLD)
    for version in (2, None):
        with pytest.raises(InvalidInput, match="Give a text"):
            await handle.move(version)  # type: ignore[arg-type]
    with pytest.raises(InvalidKey, match="version"):
        await handle.move("x" * 1000)
    for priority in (-1, 10, 1.5, "1", True):
        with pytest.raises(InvalidInput, match="0 \\(first\\) to 9"):
            await handle.set_priority(priority)  # type: ignore[arg-type]
    for deadline in (0, -1, "2h", float("nan"), 1e30, timedelta(0)):
        with pytest.raises(InvalidInput, match="Give seconds or a timedelta"):
            await handle.set_deadline(deadline)  # type: ignore[arg-type]
    later = datetime.now(UTC) + timedelta(days=2)
    with pytest.raises(InvalidInput, match="no time zone"):
        await handle.set_deadline(later.replace(tzinfo=None))
    with pytest.raises(IllegalMove, match="passed already"):
        await handle.set_deadline(datetime(1969, 1, 1, tzinfo=UTC))
    assert await handle.history() == []
    gone = client.process("0192f0c1-2b3c-7def-8123-456789abcdef")
    with pytest.raises(ProcessNotFound):
        await gone.set_priority(1)
