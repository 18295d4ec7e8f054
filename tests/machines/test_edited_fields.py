"""A person gives fields of a machine other values: while it is held or broken, with one event that says who and why."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from perdure import Handle
from perdure.errors import CallRefused, IllegalMove, InvalidInput, PayloadError
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.kernel.soundness import unsound
from tests.machines.account import Account, done, gates, rates
from tests.runtime.conftest import Open, until, until_row
from tests.runtime.test_edits import sale


async def test_a_held_machine_goes_on_with_the_fields_that_a_person_has_set(opened: Open) -> None:
    engine, store = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann", first=100)
    assert await ann.call(Account.deposit, 1) == 101
    await ann.hold()
    await ann.edit_fields(balance=120, entries=["+20 by mistake of the bank"], who="anna", why="the auditor")
    row = await engine.row(ann.id)
    assert (row.status, (await ann.status()).state["balance"]) == (Status.HELD, 120)
    assert unsound(row, await ann.history(), await store.messages([(row.id, 0)]), await store.now()) == []
    await ann.resume()
    assert await ann.call(Account.deposit, 1) == 121
    (event,) = [one for one in await ann.history() if one.type is EventType.FIELDS_EDITED]
    told = msgspec.json.decode(event.payload or b"")
    assert (told["who"], told["why"], told["origin"]) == ("anna", "the auditor", "client")
    assert (told["was"]["balance"], told["fields"]["balance"]) == (101, 120)
    await engine.close(0)
    again, _ = await opened(work=True)
    assert await again.process(ann.id).call(Account.deposit, 1) == 122


async def test_a_broken_machine_is_edited_and_its_method_is_tried_again(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann: Handle[object] = await engine.start(Account.opened, "Ann", first=100)
    with pytest.raises(CallRefused):
        await ann.call(Account.earn, "the bank")
    await until_row(engine, ann.id, lambda row: row.status is Status.BROKEN)
    await ann.edit_fields({"balance": 0})
    assert (await engine.row(ann.id)).status is Status.BROKEN
    rates["the bank"] = 7
    await ann.retry()
    assert await ann.call(Account.deposit, 1) == 8
    assert done["asking"] == 1


async def test_a_machine_that_is_given_up_after_an_edit_is_retried_from_the_step_that_failed(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    with pytest.raises(CallRefused):
        await ann.call(Account.earn, "the bank")
    await until_row(engine, ann.id, lambda row: row.status is Status.BROKEN)
    await ann.edit_fields(balance=3)
    await ann.fail()
    rates["the bank"] = 7
    await ann.retry()
    assert await ann.call(Account.deposit, 1) == 11


async def test_what_does_not_fit_is_refused_and_changes_nothing(opened: Open) -> None:
    engine, _ = await opened(work=True)
    client, _ = await opened(workflows=[sale])  # it does not know the class
    ann = await engine.start(Account.opened, "Ann", first=4)
    assert await ann.call(Account.deposit, 1) == 5
    with pytest.raises(IllegalMove, match="running: a method of it could overwrite them"):
        await ann.edit_fields(balance=1)
    await ann.hold()
    with pytest.raises(InvalidInput, match="Account has no field 'balanse'"):
        await ann.edit_fields(balanse=1)
    with pytest.raises(InvalidInput, match="the machine has no field 'balanse'"):
        await client.process(ann.id).edit_fields(balanse=1)
    with pytest.raises(PayloadError, match="balance"):
        await ann.edit_fields(balance="much")
    with pytest.raises(InvalidInput, match="no field is given"):
        await ann.edit_fields()
    plain = await engine.start(sale, "A-1", 1)
    await plain.hold()
    with pytest.raises(IllegalMove, match="only a machine has fields"):
        await plain.edit_fields(balance=1)
    assert (await ann.status()).state["balance"] == 5


async def test_a_method_that_was_under_way_goes_on_with_the_new_fields(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    slow = asyncio.create_task(ann.call(Account.slow, "a"))
    await until(lambda: done["began a"])
    await ann.hold()
    await ann.edit_fields(entries=["before"])
    gates["a"].set()
    await ann.resume()
    assert await slow == "a"
    assert await ann.call(Account.history) == ["before", "a"]
