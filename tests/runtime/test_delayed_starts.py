"""A start with a delay, on both stores: the code begins at its time, or at once when a message comes sooner."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure.authoring.workflow import receive, workflow
from perdure.clock import SECOND
from perdure.errors import IllegalMove, InvalidInput
from perdure.kernel.event import EventType
from tests.runtime.conftest import LIMIT, Open


@workflow
async def reminder(whom: str) -> str:
    return f"dear {whom}"


@workflow
async def patient(whom: str) -> str:
    return await receive("word", str)


FLOWS = [reminder, patient]
MANY = 60
"""Commands at once: more than a command has tries."""


async def test_a_delayed_start_begins_at_its_time_and_not_before(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    asked = await engine.store.now()
    handle = await engine.start(reminder.options(delay=0.1), "Ann")
    assert await handle.result(LIMIT) == "dear Ann"
    assert (await engine.row(handle.id)).changed_at >= asked + SECOND // 10


async def test_until_then_no_worker_has_it_and_people_are_told_what_it_waits_for(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    view = await (await engine.start(reminder.options(delay=timedelta(hours=1)), "Ann")).status()
    assert (view.mover, view.waiting, view.owner) == ("timer", "it waits for the time of its start", None)
    assert view.until is not None and view.created_at is not None
    assert abs(view.until - view.created_at - timedelta(hours=1)) < timedelta(seconds=LIMIT)


async def test_a_signal_that_comes_sooner_starts_it_at_once(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(patient.options(delay=3600), "Ann")
    await handle.signal("word", "now")
    assert await handle.result(LIMIT) == "now"


async def test_a_second_start_with_the_key_keeps_the_time_of_the_first(opened: Open) -> None:
    engine, _ = await opened(workflows=FLOWS)
    first = await engine.start(reminder.options(key="k", delay=3600), "Ann")
    second = await engine.start(reminder.options(key="k", delay=60), "Ann")
    assert (second.id, second.created) == (first.id, False)
    row = await engine.row(first.id)
    assert row.due_at is not None and row.due_at - row.created_at > 3000 * SECOND


async def test_rule_22_commands_that_meet_leave_the_time_of_the_start_as_it_is(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(reminder.options(delay=3600), "Ann")
    due_at = (await engine.row(handle.id)).due_at
    await asyncio.gather(
        handle.edit_attributes(stage="late"), handle.edit_attributes(owner="bob"), handle.set_deadline(7200)
    )
    row = await engine.row(handle.id)
    assert (row.due_at, row.opened_at, row.owner) == (due_at, None, None)
    with pytest.raises(IllegalMove, match="has the priority 1 already"):
        await asyncio.gather(handle.set_priority(1), handle.set_priority(1))
    row = await engine.row(handle.id)
    assert (row.due_at, row.opened_at, row.owner) == (due_at, None, None)
    await handle.edit_input(["Bob"])
    assert (await engine.row(handle.id)).due_at == due_at, "it has not begun, so its input may be edited"


async def test_rule_22_of_many_commands_that_meet_at_a_process_that_nobody_has_each_is_carried_out(
    opened: Open,
) -> None:
    one, _ = await opened(workflows=FLOWS)
    two, _ = await opened(workflows=FLOWS)
    handle = await one.start(reminder.options(delay=3600), "Ann")
    due_at = (await one.row(handle.id)).due_at
    await asyncio.gather(
        *((one, two)[n % 2].process(handle.id).edit_attributes({f"a{n % 8}": n}, why=str(n)) for n in range(MANY))
    )
    edits = [event for event in await handle.history() if event.type is EventType.ATTRIBUTES_EDITED]
    row = await one.row(handle.id)
    assert (len(edits), row.due_at, row.opened_at) == (MANY, due_at, None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delay": 0}, "the delay is 0. Give seconds or a timedelta"),
        ({"delay": "soon"}, "the delay is 'soon'"),
        ({"delay": 60, "signal": ("word", "x")}, "a signal starts the process at once"),
        ({"delay": 60, "deadline": 60}, "is not shorter than the deadline"),
    ],
)
async def test_a_delay_that_makes_no_sense_is_refused(opened: Open, options: dict[str, Any], words: str) -> None:
    engine, _ = await opened(workflows=FLOWS)
    with pytest.raises(InvalidInput, match=words):
        await engine.start(patient.options(**options), "Ann")
    assert not await engine.list()
