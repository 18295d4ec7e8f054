"""Orders to machines whose fields were not read: they lie outside of the database, or are sealed with another key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure import Engine
from perdure.authoring.operation.plan import OperationPlan, OperationStatus, Window
from perdure.client.handle import Handle
from perdure.errors import CallRefused, IllegalMove, UnreadablePayload
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.store.sealed.offload import Folder
from tests.machines.account import Account, rates
from tests.runtime.conftest import LIMIT, Open, until_row
from tests.runtime.test_sealed_life import NEW, sealed

ALL = "kind = Account"


async def rich(opened: Open, **settings: Any) -> tuple[Engine, Handle[Any]]:
    """An account whose fields take more than 500 bytes, with a balance of 7."""
    engine, _ = await opened(work=True, **settings)
    ann: Handle[Any] = await engine.start(Account.opened, "Ann")
    for n in range(12):
        await ann.signal(Account.note, f"{n} " + 60 * "x")
    assert await ann.call(Account.deposit, 7) == 7
    return engine, ann


async def rich_outside(opened: Open, tmp_path: Path) -> tuple[Engine, Handle[Any]]:
    """The same, with its fields outside of the database."""
    return await rich(opened, offload=Folder(tmp_path / "blobs", above=500))


async def broken(engine: Engine, ann: Handle[Any]) -> None:
    """Break it by a step that fails."""
    with pytest.raises(CallRefused):
        await ann.call(Account.earn, "the bank")
    await until_row(engine, ann.id, lambda row: row.status is Status.BROKEN)


async def carried_out(engine: Engine, verb: str, **settings: Any) -> OperationStatus:
    return await (await engine.operations.start(verb, ALL, watch=0, **settings)).result(LIMIT)


@pytest.mark.parametrize(
    ("verb", "settings"), [("restart", {}), ("edit-input", {"value": ["Bob"], "restart": True})], ids=["plain", "edit"]
)
async def test_an_operation_that_restarts_leaves_out_machines_whose_fields_are_kept_outside(
    opened: Open, tmp_path: Path, verb: str, settings: dict[str, Any]
) -> None:
    engine, ann = await rich_outside(opened, tmp_path)
    with pytest.raises(IllegalMove) as alone:
        await ann.restart()
    preview = await engine.operations.preview(verb, ALL, **settings)
    assert (preview.would, preview.left_out) == (0, {str(alone.value): 1})
    outcome = await carried_out(engine, verb, **settings)
    assert (outcome.done, outcome.left_out) == (0, {str(alone.value): 1})
    assert await ann.call(Account.deposit, 1) == 8


async def test_an_operation_retries_a_machine_whose_fields_are_kept_outside_from_the_step_that_failed(
    opened: Open, tmp_path: Path
) -> None:
    engine, ann = await rich_outside(opened, tmp_path)
    await broken(engine, ann)
    rates["the bank"] = 1
    assert (await engine.operations.preview("retry", ALL)).would == 1
    assert (await carried_out(engine, "retry")).done == 1
    assert (await engine.row(ann.id)).run > 1
    assert await ann.call(Account.deposit, 1) == 9


async def test_an_operation_repairs_and_edits_machines_whose_fields_are_kept_outside(
    opened: Open, tmp_path: Path
) -> None:
    engine, ann = await rich_outside(opened, tmp_path)
    await broken(engine, ann)
    assert (await carried_out(engine, "edit-fields", value={"balance": 20})).done == 1
    assert (await carried_out(engine, "repair", method="settled", value=[30])).done == 1
    assert await ann.call(Account.deposit, 1) == 31


async def test_one_that_another_worker_has_commanded_before_its_fields_are_fetched_is_counted_once(
    opened: Open, tmp_path: Path
) -> None:
    engine, ann = await rich_outside(opened, tmp_path)
    await broken(engine, ann)
    rates["the bank"] = 1
    slow, _ = await opened(offload=Folder(tmp_path / "blobs", above=500))
    plan, window = OperationPlan("repair", ALL, method="settled", value=[30]), Window(await slow.store.now())
    chosen = await slow.operations.select(plan, "one", window, None, 9)
    assert (await engine.operations.carry_out(plan, "one", window, chosen.processes)).done == 1
    assert (await slow.operations.carry_out(plan, "one", window, chosen.processes)).done == 1
    [repair] = [event for event in await ann.history() if event.type is EventType.REPAIRED]
    assert repair.name == "settled"
    assert await ann.call(Account.deposit, 1) == 31


async def test_a_list_shows_an_operation_whose_fields_are_kept_outside(opened: Open, tmp_path: Path) -> None:
    engine, _ = await rich_outside(opened, tmp_path)
    operation = await engine.operations.start("edit-fields", ALL, value={"owner": 600 * "x"}, watch=0)
    outcome = await operation.result(LIMIT)
    assert await engine.operations.list() == [(operation.id, outcome)]


@pytest.mark.parametrize("codecs", [[], sealed(new=NEW)], ids=["no codecs", "another key"])
async def test_a_machine_is_not_restarted_by_who_cannot_read_its_fields(opened: Open, codecs: list[Any]) -> None:
    engine, ann = await rich(opened, codecs=sealed())
    stranger, _ = await opened(codecs=codecs)
    there = stranger.process(ann.id)
    with pytest.raises(UnreadablePayload):
        await there.restart()
    with pytest.raises(UnreadablePayload):
        await there.edit_input(["Bob"], restart=True)
    with pytest.raises(UnreadablePayload):
        await there.fork()
    assert await ann.call(Account.deposit, 1) == 8
    await broken(engine, ann)
    with pytest.raises(UnreadablePayload):
        await there.edit_fields(balance=3)
    with pytest.raises(UnreadablePayload):
        await there.retry()
    assert (await there.status()).status == "broken"
    rates["the bank"] = 1
    await ann.retry()
    assert await ann.call(Account.deposit, 1) == 10
