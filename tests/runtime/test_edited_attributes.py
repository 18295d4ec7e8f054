"""A person edits attributes on both stores: found at once, and they stay until the code sets them again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import json

from perdure.authoring.attempt import attempt
from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import IllegalMove, InvalidInput, InvalidKey, PayloadError, Permanent, ProcessFailed
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.turns.publication import set_attributes
from tests.runtime.conftest import LIMIT, Open, until, until_row
from tests.runtime.errand import sound
from tests.runtime.test_attributes import attributes, found

begun: list[str] = []
gates: list[asyncio.Event] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    begun.clear()
    gates[:] = [asyncio.Event()]


@step
async def long() -> str:
    begun.append(attempt().key)
    await gates[0].wait()
    return "done"


@step(at_most_once=True)
async def once() -> None:
    begun.append(attempt().key)
    await gates[0].wait()


@workflow
async def claim(number: int) -> str:
    set_attributes(stage="begun", number=number)
    await receive("on")
    set_attributes(number=number + 1)
    await receive("on")
    set_attributes(stage="ending")
    return await long()


@workflow
async def careful() -> None:
    set_attributes(stage="begun")
    await once()


@step
async def note() -> None:
    """A place to go on from."""


@step(retry=Retry.NONE)
async def flaky() -> str:
    begun.append("flaky")
    if len(begun) == 1:
        raise Permanent("not today")
    return "done"


@workflow
async def errand() -> str:
    set_attributes(stage="begun", number=7)
    await note()
    await receive("on")
    return await flaky()


FLOWS = [claim, careful, errand]


async def waiting(engine: Engine, handle: Handle[Any]) -> None:
    await until_row(engine, handle.id, lambda row: row.awaiting == "signal on" and row.owner is None)


async def test_a_search_finds_what_a_person_has_edited_at_once_and_one_event_says_who_and_why(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(claim.options(attributes={"customer": "Ann"}), 7)
    await waiting(engine, handle)
    await handle.edit_attributes({"stage": "late", "customer": None}, owner="bob", who="ann", why="a strike")
    assert await found(engine, stage="late", owner="bob") == [handle.id] and await found(engine, customer="Ann") == []
    assert await attributes(engine, handle) == {"number": 7, "stage": "late", "owner": "bob"}
    row = await engine.row(handle.id)
    assert (row.status, row.awaiting) == (Status.RUNNING, "signal on"), "it waits on"
    await sound(engine, store, handle)
    (event,) = [one for one in await handle.history() if one.type is EventType.ATTRIBUTES_EDITED]
    assert json.decode(event.payload or b"") == {
        "who": "ann", "why": "a strike", "origin": "client",
        "attributes": {"stage": "late", "customer": None, "owner": "bob"},
        "was": {"stage": "begun", "customer": "Ann", "owner": None},
    }  # fmt: skip


async def test_what_was_edited_stays_until_the_code_sets_it_again_also_on_another_worker(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(claim, 7)
    await waiting(engine, handle)
    await handle.edit_attributes(stage="late", number=0)
    await handle.signal("on")
    await until_row(engine, handle.id, lambda row: row.seen == 1 and row.owner is None)
    assert await attributes(engine, handle) == {"stage": "late", "number": 8}, "the code has set the number again"
    await handle.edit_attributes(number=0)
    await engine.close(0)
    other, store = await opened(work=True, workflows=FLOWS)
    gates[0].set()
    assert await attributes(other, handle) == {"stage": "late", "number": 0}
    await other.process(handle.id).signal("on")
    assert await other.process(handle.id).result(timeout=LIMIT) == "done"
    assert await attributes(other, handle) == {"stage": "ending", "number": 0}
    await sound(other, store, other.process(handle.id))


async def test_of_a_process_in_hand_the_step_begins_again_under_its_key_and_the_edit_stays(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(claim, 7)
    for _ in range(2):
        await handle.signal("on")
    await until(lambda: len(begun) == 1)
    await handle.edit_attributes(stage="late")
    await until(lambda: len(begun) == 2)
    assert begun[0] == begun[1]
    gates[0].set()
    assert await handle.result(LIMIT) == "done"
    assert await attributes(engine, handle) == {"stage": "late", "number": 8}
    await sound(engine, store, handle)


async def test_a_step_that_runs_at_most_once_is_not_interrupted_for_an_edit(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(careful)
    await until(lambda: len(begun) == 1)
    with pytest.raises(IllegalMove, match="step once runs, which runs at most once"):
        await handle.edit_attributes(stage="late")
    gates[0].set()
    await handle.result(LIMIT)
    with pytest.raises(IllegalMove, match="that is completed"):
        await handle.edit_attributes(stage="late")
    assert (len(begun), await attributes(engine, handle)) == (1, {"stage": "begun"})


async def test_a_held_process_is_edited_and_stays_held(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(claim, 7)
    await waiting(engine, handle)
    await handle.hold()
    await handle.edit_attributes(stage="late")
    assert (await engine.row(handle.id)).status is Status.HELD and await found(engine, stage="late") == [handle.id]
    await sound(engine, store, handle)


async def test_what_cannot_be_an_attribute_is_refused_and_changes_nothing(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(claim, 7)
    await waiting(engine, handle)
    for wrong, error in (
        ({}, InvalidInput), ({"@context": "x"}, InvalidInput), ({"a": [1]}, PayloadError), ({"": 1}, InvalidKey),
        ({"a": 70_000 * "x"}, PayloadError),
    ):  # fmt: skip
        with pytest.raises(error):
            await handle.edit_attributes(wrong)
    assert await attributes(engine, handle) == {"stage": "begun", "number": 7}


async def test_the_code_of_a_process_that_was_edited_before_it_began_sets_its_attributes_after_that(
    opened: Open,
) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(claim.options(attributes={"customer": "Ann"}, delay=3600), 7)
    await handle.edit_attributes(stage="late", customer="Bob")
    await handle.signal("on")
    await until_row(engine, handle.id, lambda row: row.seen == 1 and row.owner is None)
    assert await attributes(engine, handle) == {"stage": "begun", "number": 8, "customer": "Bob"}
    await sound(engine, store, handle)


async def failed_after_an_edit(engine: Engine) -> Handle[str]:
    """A process whose step has failed; its stage was edited to ``late`` before that."""
    handle = await engine.start(errand)
    await waiting(engine, handle)
    await handle.edit_attributes(stage="late")
    await handle.signal("on")
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    return handle


async def retried(handle: Handle[str]) -> Handle[str]:
    await handle.retry()
    return handle


async def given(handle: Handle[str]) -> Handle[str]:
    await handle.set_result("flaky", "done")
    return handle


async def from_the_step(handle: Handle[str]) -> Handle[str]:
    await handle.restart_from("flaky")
    return handle


async def forked(handle: Handle[str]) -> Handle[str]:
    return await handle.fork()


@pytest.mark.parametrize("way", [retried, given, from_the_step, forked])
async def test_a_run_that_goes_on_where_the_last_one_was_keeps_what_was_edited(opened: Open, way: Any) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    handle = await way(await failed_after_an_edit(engine))
    assert await handle.result(LIMIT) == "done"
    assert await attributes(engine, handle) == {"stage": "late", "number": 7}
    await sound(engine, store, handle)


async def test_a_run_that_goes_on_from_before_the_edit_has_what_its_code_sets(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    handle = await failed_after_an_edit(engine)
    await handle.restart_from("note")
    assert await handle.result(LIMIT) == "done"
    assert await attributes(engine, handle) == {"stage": "begun", "number": 7}
    await sound(engine, store, handle)
