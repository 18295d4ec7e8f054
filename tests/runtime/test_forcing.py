"""Commands from elsewhere: no process outruns them, and whoever has it in hand hears at once (rule 22)."""

from __future__ import annotations

import asyncio

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import set_state, workflow
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import IllegalMove, ProcessCancelled
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.testing.faults import Gate
from tests.runtime.conftest import LIMIT, Open, until, until_row
from tests.runtime.errand import FLOWS, act, done, errand, forget, gates, sound


@pytest.fixture(autouse=True)
def _fresh() -> None:
    forget()


@step
async def tick(n: int) -> int:
    return n + 1


@workflow
async def restless() -> int:
    """Commits as fast as it can, and never ends."""
    n = 0
    while True:
        n = await tick(n)
        set_state(n)


async def running(worker: Engine, client: Engine) -> Handle[int]:
    """The handle, elsewhere, of a process that commits without pause."""
    handle = await worker.start(restless)
    await until_row(client, handle.id, lambda row: row.version > 5)
    return client.handle_of(await client.row(handle.id))


@pytest.mark.parametrize("verb", ["terminate", "hold", "restart", "restart_from", "cancel"])
async def test_rule_22_a_process_that_commits_without_pause_does_not_outrun_a_command(
    opened: Open, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr("perdure.limits.COMMAND_TRIES", 1)
    worker, _ = await opened(work=True, workflows=[restless])
    client, store = await opened()
    handle = await running(worker, client)
    if verb == "restart_from":
        await handle.restart_from("tick:1", who="anna", why="enough")
    elif verb == "cancel":
        await handle.cancel(deadline=60, who="anna")
    else:
        await getattr(handle, verb)(who="anna", why="enough")
    if verb == "terminate":
        with pytest.raises(ProcessCancelled, match="terminated by anna because: enough"):
            await handle.result(LIMIT)
    elif verb == "hold":
        assert (await client.row(handle.id)).status is Status.HELD
    elif verb != "cancel":
        assert (await client.row(handle.id)).run == 2
        await handle.terminate()
    await until_row(client, handle.id, lambda row: row.owner is None)
    await sound(client, store, handle)


async def test_rule_22_a_command_that_cannot_be_carried_out_gives_the_process_back_at_once(opened: Open) -> None:
    worker, _ = await opened(work=True, workflows=[restless])
    client, _ = await opened()
    handle = await running(worker, client)
    with pytest.raises(IllegalMove, match="has its result"):
        await handle.set_result("tick:1", 7)
    before = await client.row(handle.id)
    await until_row(client, handle.id, lambda row: row.version > before.version + 5)
    await handle.terminate()


@pytest.mark.parametrize("verb", ["terminate", "hold", "restart"])
async def test_rule_22_steps_in_flight_elsewhere_are_stopped_at_once(opened: Open, verb: str) -> None:
    worker, store = await opened(work=True, workflows=FLOWS)
    client, _ = await opened()
    gates["first"] = asyncio.Event()
    handle = client.handle_of(await client.row((await worker.start(errand)).id))
    await until(lambda: done)
    beats = len([name for name, _ in store.calls if name == "beat"])
    await getattr(handle, verb)(who="anna")
    await until(lambda: "first stopped" in done)
    assert worker.metrics()["leases_lost"] == 1 or verb == "restart"  # what is restarted may be ours again by then
    assert len([name for name, _ in store.calls if name == "beat"]) <= beats + 2  # it asked, and did not wait


async def test_a_message_to_a_process_in_hand_takes_nothing_from_anybody(opened: Open) -> None:
    worker, _ = await opened(work=True, workflows=FLOWS)
    client, _ = await opened()
    gates["first"] = asyncio.Event()
    handle = client.handle_of(await client.row((await worker.start(errand)).id))
    await until(lambda: done)
    token = (await client.row(handle.id)).token
    await handle.signal("go", "on")
    await until(lambda: worker.metrics()["messages"] == 1)
    gates["first"].set()
    assert await handle.result(LIMIT) == "first 1, on, last 1"
    assert (worker.metrics()["leases_lost"], (await client.row(handle.id)).token) == (0, token)


async def test_rule_22_a_command_that_dies_in_the_middle_leaves_a_process_that_goes_on(opened: Open) -> None:
    worker, _ = await opened(work=True, workflows=FLOWS)
    client, store = await opened()
    gates["first"] = asyncio.Event()
    handle = client.handle_of(await client.row((await worker.start(errand)).id))
    await until(lambda: done)
    killed = store.after = Gate("claim")
    command = asyncio.create_task(handle._seized(lambda *_: pytest.fail("too far")))
    await killed.reached.wait()
    command.cancel()
    await until(lambda: done.count("first") == 2)
    gates["first"].set()
    await handle.signal("go", "on")
    assert await handle.result(LIMIT) == "first 2, on, last 1"
    revived = [event for event in await handle.history() if event.type is EventType.REVIVED]
    assert len(revived) == 1


async def test_rule_22_a_command_that_is_cancelled_while_it_seizes_gives_the_process_back_at_once(opened: Open) -> None:
    worker, _ = await opened(work=True, workflows=FLOWS)
    client, store = await opened()
    gates["first"] = asyncio.Event()
    handle = client.handle_of(await client.row((await worker.start(errand)).id))
    await until(lambda: done)
    slow = store.after = Gate("claim")
    command = asyncio.create_task(handle._seized(lambda *_: pytest.fail("too far")))
    await slow.reached.wait()
    command.cancel()
    with pytest.raises(asyncio.CancelledError):
        await command
    slow.open.set()
    await until(lambda: done.count("first") == 2)
    gates["first"].set()
    await handle.signal("go", "on")
    assert await handle.result(LIMIT) == "first 2, on, last 1"
    assert EventType.REVIVED not in {event.type for event in await handle.history()}, "it waited for no lease"


@workflow
async def lingers() -> str:
    try:
        return str(await act("first"))
    finally:
        await act("last")


async def test_an_owner_elsewhere_notes_the_deadline_of_a_cancel_by_itself_and_keeps_the_process(
    opened: Open,
) -> None:
    worker, _ = await opened(work=True, workflows=[lingers])
    client, _ = await opened()
    for deed in ("first", "last"):
        gates[deed] = asyncio.Event()
    handle = client.handle_of(await client.row((await worker.start(lingers)).id))
    await until(lambda: done)
    token = (await client.row(handle.id)).token
    await handle.cancel(deadline=60, who="anna")
    row = await client.row(handle.id)
    assert row.deadline is not None and row.token == token and row.owner is not None
    await until(lambda: done == ["first", "first stopped", "last"])
    gates["last"].set()
    with pytest.raises(ProcessCancelled):
        await handle.result(LIMIT)
    assert EventType.DEADLINE_SET not in [event.type for event in await handle.history()]
