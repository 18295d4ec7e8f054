"""Notices: whoever is named as reply address is told how a process has begun and what becomes of it, in order, once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    BlockingEngine,
    Handle,
    Notice,
    Search,
    Status,
    Workflow,
    machine,
    receive,
    testing,
    workflow,
)
from perdure.engine import Engine
from perdure.errors import InvalidInput, InvalidKey, PayloadTooLarge, ProcessFailed, ProcessNotFound
from perdure.kernel.notice import Reason
from perdure.store.sealed.offload import Folder
from tests.notices.flows import gatherer, listener, patient, renewed, trouble, troubled, unwell
from tests.runtime.conftest import Open, until_row
from tests.runtime.test_sealed_life import sealed

HOSTED: list[Workflow[Any, Any]] = [listener, gatherer, troubled, patient, renewed]


async def heard(engine: Engine, receiver: Handle[Any], count: int) -> list[str]:
    """The statuses that a listener has noted, once there are so many."""
    row = await until_row(engine, receiver.id, lambda row: row.state is not None and row.state.count(b"[") > count)
    assert row.state is not None
    noted = (await receiver.status()).state
    return [status for _, status in noted]


@pytest.fixture(autouse=True)
def _well() -> None:
    unwell[0] = False


async def test_a_process_is_told_that_another_has_begun_and_completed_with_its_result(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    receiver = await engine.start(gatherer, 2)
    handle = await engine.start(troubled.options(key="A-17", attributes={"branch": "Bern"}, reply_to=receiver))
    received, completed = await receiver.result(20)
    assert (received.status, received.process, received.kind, received.key) == (
        "received",
        handle.id,
        "troubled",
        "A-17",
    )
    assert (received.result, received.error, completed.error) == (None, None, None)
    assert (completed.status, completed.process, completed.run, completed.result) == ("completed", handle.id, 1, "well")
    assert received.id != completed.id
    view = await handle.status()
    assert (view.reply_to, view.attributes) == (receiver.id, {"branch": "Bern"})
    found = await engine.list(Search(attributes=(("@reply_to", f'"{receiver.id}"'),)))
    assert [one.id for one in found] == [handle.id]


async def test_a_failure_is_told_with_its_reason_and_so_is_the_retry_that_completes(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    receiver = await engine.start(gatherer, 4)
    unwell[0] = True
    handle = await engine.start(troubled.options(reply_to=receiver.id))
    with pytest.raises(ProcessFailed):
        await handle.result(20)
    unwell[0] = False
    await handle.retry()
    told = await receiver.result(20)
    assert [(one.status, one.run) for one in told] == [("received", 1), ("failed", 1), ("running", 2), ("completed", 2)]
    assert told[1].error == Reason("StepError", "step 'trouble' failed, tried once: Permanent: the till is empty")
    assert told[2].error is None


async def ended_by_deadline(engine: Engine, handle: Handle[Any]) -> None:
    """Nobody does anything."""


async def terminated(engine: Engine, handle: Handle[Any]) -> None:
    await handle.terminate(who="anna", why="a mistake")


async def cancelled(engine: Engine, handle: Handle[Any]) -> None:
    await handle.cancel()


async def cancelled_soon(engine: Engine, handle: Handle[Any]) -> None:
    await handle.cancel(deadline=60)


async def failed(engine: Engine, handle: Handle[Any]) -> None:
    await handle.fail(who="anna")


async def held_and_resumed(engine: Engine, handle: Handle[Any]) -> None:
    await handle.hold(who="anna")
    await handle.resume()
    await handle.signal("go", "on")


async def restarted(engine: Engine, handle: Handle[Any]) -> None:
    await handle.restart()
    await handle.signal("go", "on")


async def completed(engine: Engine, handle: Handle[Any]) -> None:
    await handle.signal("go", "on")


async def ended_and_restarted(engine: Engine, handle: Handle[Any]) -> None:
    await handle.terminate()
    await handle.restart()
    await handle.signal("go", "on")


async def edited(engine: Engine, handle: Handle[Any]) -> None:
    await handle.edit_input([], restart=True)
    await handle.signal("go", "on")


async def removed(engine: Engine, handle: Handle[Any]) -> None:
    await handle.remove(force=True)


WAYS: list[tuple[Any, float | None, list[str]]] = [
    (completed, None, ["completed"]),
    (ended_by_deadline, 0.1, ["failed"]),
    (terminated, None, ["cancelled"]),
    (cancelled, None, ["cancelled"]),
    (cancelled_soon, None, ["cancelled"]),
    (failed, None, ["failed"]),
    (held_and_resumed, None, ["held", "running", "completed"]),
    (restarted, None, ["completed"]),
    (ended_and_restarted, None, ["cancelled", "running", "completed"]),
    (edited, None, ["completed"]),
    (removed, None, ["cancelled"]),
]
"""What is done to a process that waits, its deadline in seconds, and what is told after it was received."""


@pytest.mark.parametrize(("way", "deadline", "told"), WAYS, ids=[way.__name__ for way, _, _ in WAYS])
@pytest.mark.parametrize("begun", [True, False], ids=["begun", "not begun"])
async def test_each_way_to_end_is_told(
    opened: Open, way: Any, deadline: float | None, told: list[str], begun: bool
) -> None:
    client, _ = await opened()
    await opened(work=True, workflows=HOSTED if begun else [listener])
    receiver = await client.start(listener)
    handle = await client.start(patient.options(deadline=deadline, reply_to=receiver))
    if begun and deadline is None:
        await until_row(client, handle.id, lambda row: row.awaiting is not None)
    await way(client, handle)
    if not begun:
        await opened(work=True, workflows=HOSTED)
    assert await heard(client, receiver, 1 + len(told)) == ["received", *told]
    await receiver.signal("end")
    assert [status for _, status in await receiver.result(20)] == ["received", *told], "each is told once"


async def test_one_that_is_held_and_edited_before_it_begins_is_not_told_to_run(opened: Open) -> None:
    client, _ = await opened()
    await opened(work=True, workflows=[listener])
    receiver = await client.start(listener)
    handle = await client.start(patient.options(reply_to=receiver))
    await handle.hold()
    await handle.edit_input([])
    assert (await handle.status()).status is Status.HELD
    await handle.resume()
    await handle.signal("go", "on")
    await opened(work=True, workflows=HOSTED)
    assert await heard(client, receiver, 4) == ["received", "held", "running", "completed"]


async def test_a_fork_tells_nobody(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    receiver = await engine.start(listener)
    handle = await engine.start(troubled.options(attributes={"branch": "Bern"}, reply_to=receiver))
    await handle.result(20)
    fork = await handle.fork()
    assert await fork.result(20) == "well"
    view = await fork.status()
    assert (view.reply_to, view.attributes) == (None, {"branch": "Bern"})
    assert await heard(engine, receiver, 2) == ["received", "completed"]
    await receiver.signal("end")
    assert len(await receiver.result(20)) == 2


async def right() -> str:
    await trouble()
    return str(await receive("go", str))


async def wrong() -> str:
    return str(await receive("go", str))


async def test_what_breaks_and_what_a_person_then_does_is_told(opened: Open) -> None:
    client, _ = await opened()
    before, after = workflow(name="changed")(right), workflow(name="changed")(wrong)
    receiver = await client.start(gatherer, 4)
    first, _ = await opened(work=True, workflows=[before])
    handle = await client.start(before.options(reply_to=receiver))
    await until_row(client, handle.id, lambda row: row.awaiting is not None)
    await first.close(0)
    await handle.signal("go", "on")
    second, _ = await opened(work=True, workflows=[after])
    await until_row(client, handle.id, lambda row: row.status is Status.BROKEN)
    await second.close(0)
    await opened(work=True, workflows=[gatherer, before])
    await handle.retry()
    told = await receiver.result(20)
    assert [one.status for one in told] == ["received", "broken", "running", "completed"]
    assert told[1].error is not None
    assert told[1].error.type == "HistoryMisfit"
    assert len({one.id for one in told}) == 4, "each has an id of its own"


async def test_a_process_that_continues_as_new_and_changes_its_attributes_keeps_its_reply_address(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    receiver = await engine.start(gatherer, 2)
    handle = await engine.start(renewed.options(attributes={"left": 9}, reply_to=receiver), 3)
    assert [(one.status, one.run) for one in await receiver.result(20)] == [("received", 1), ("completed", 4)]
    assert (await handle.status()).attributes == {"left": 0}


async def test_a_process_that_ends_in_its_first_turn_is_told(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    receiver = await engine.start(gatherer, 2)
    await engine.start(renewed.options(reply_to=receiver), 0)
    assert [one.status for one in await receiver.result(20)] == ["received", "completed"]


async def test_many_processes_tell_one_receiver_of_all_their_ends(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    receiver = await engine.start(listener)
    flows = [troubled.options(key=str(number), reply_to=receiver) for number in range(60)]
    handles = await asyncio.gather(*map(engine.start, flows))
    await asyncio.gather(*(handle.result(20) for handle in handles))
    await heard(engine, receiver, 120)
    await receiver.signal("end")
    told = await receiver.result(20)
    for number in range(60):
        assert [status for key, status in told if key == str(number)] == ["received", "completed"]
    assert len(told) == 120


class Desk(machine.Machine):
    told: list[str] = machine.field(default_factory=list)

    @machine.init
    def opened(self) -> None:
        pass

    @machine.signal
    def notice(self, told: Notice) -> None:
        self.told.append(f"{told.key} {told.status}")


async def test_a_machine_gets_notices_by_a_method_of_that_name(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[*HOSTED, Desk.__machine__])
    desk = await engine.start(Desk.opened)
    handle = await engine.start(troubled.options(key="A-17", reply_to=desk))
    await handle.result(20)
    row = await until_row(engine, desk.id, lambda row: row.state is not None and b"completed" in row.state)
    assert row.status is Status.RUNNING
    assert (await desk.status()).state == {"told": ["A-17 received", "A-17 completed"]}


async def test_a_receiver_that_has_ended_is_no_trouble_for_the_sender(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    receiver = await engine.start(gatherer, 0)
    await receiver.result(20)
    handle = await engine.start(troubled.options(reply_to=receiver))
    assert await handle.result(20) == "well"
    assert (await receiver.status()).status is Status.COMPLETED


async def test_a_receiver_that_has_gone_is_no_trouble_for_the_sender(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=HOSTED)
    receiver = await engine.start(gatherer, 0)
    await receiver.result(20)
    gate = await engine.start(patient.options(reply_to=receiver))
    assert (await store.prune(-1_000_000, 0, 10)).processes == 1
    with pytest.raises(ProcessNotFound):
        await receiver.status()
    await gate.signal("go", "on")
    assert await gate.result(20) == "on"


async def test_who_cannot_be_replied_to_is_refused_before_anything_is_stored() -> None:
    async with testing.engine() as engine:
        with pytest.raises(ProcessNotFound):
            await engine.start(patient.options(reply_to="0192f0c1-2b3c-7def-8123-456789abcdef"))
        with pytest.raises(InvalidKey, match="not a process id"):
            await engine.start(patient.options(reply_to="anna"))
        with pytest.raises(InvalidInput, match="Give a handle"):
            await engine.start(patient.options(reply_to=7))  # type: ignore[arg-type]  # that is what is refused
        receiver = await engine.start(listener)
        with pytest.raises(InvalidInput, match="reply_to="):
            await engine.start(patient.options(attributes={"@reply_to": receiver.id}))
        full = {f"a{number:02}": "x" * 1000 for number in range(64)} | {"b": "x" * 930}
        with pytest.raises(PayloadTooLarge):
            await engine.start(patient.options(attributes=full, reply_to=receiver))
        assert await engine.count(Search(kind="patient")) == {}


async def test_a_program_without_an_event_loop_names_a_reply_address_too(store_url: str) -> None:
    def program() -> list[Notice]:
        with BlockingEngine(store_url, work=True, workflows=HOSTED) as engine:
            receiver = engine.start(gatherer, 2)
            engine.start(troubled.options(reply_to=receiver))
            return receiver.result(20)

    assert [one.status for one in await asyncio.to_thread(program)] == ["received", "completed"]


async def test_who_has_the_key_reads_a_sealed_notice_and_its_database_shows_none_of_it(
    opened: Open, tmp_path: Path
) -> None:
    folder = Folder(tmp_path / "blobs", above=500)
    engine, _ = await opened(work=True, workflows=HOSTED, codecs=sealed(), offload=folder)
    receiver = await engine.start(gatherer, 2)
    handle = await engine.start(patient.options(reply_to=receiver, signal=("go", 600 * "x")))
    assert [one.result for one in await receiver.result(20)] == [None, 600 * "x"]
    assert (await handle.status()).reply_to == receiver.id
    stranger, _ = await opened()
    kept = await stranger.store.messages([(receiver.id_bytes, 0)])
    assert len(kept) == 2
    assert not any(b"completed" in one.payload or b"xxx" in one.payload for one in kept)
