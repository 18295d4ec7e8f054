"""Letters that a process has heard and its code has not received, taken over with it into another database."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import json

from perdure import Engine, Status
from tests.rehearsal import code
from tests.rehearsal.test_archive import lines_of, sound
from tests.runtime.conftest import LIMIT, Open, until_row


async def until_heard(engine: Engine, id: str, many: int) -> Any:
    """The row of a process, once it has heard so many messages and no worker holds it."""
    return await until_row(engine, id, lambda row: row.seen == row.inbox == many and row.owner is None)


async def moved(source: Engine, opened: Open) -> Engine:
    """A worker on another database, which has taken over all that this one had."""
    lines = await lines_of(source)
    await source.close(0)
    target, _ = await opened(work=True, workflows=[code.collecting])
    assert (await target.archive.load(lines)).complete
    return target


@pytest.mark.parametrize("many", [1, 1100])
async def test_letters_that_were_heard_and_not_received_are_taken_over_in_their_order(
    opened: Open, elsewhere: Open, many: int
) -> None:
    source, _ = await elsewhere(work=True, workflows=[code.collecting])
    handle = await source.start(code.collecting, many)
    for n in range(0, many, 100):
        await asyncio.gather(*(handle.signal("item", n + k) for k in range(min(100, many - n))))
    await until_heard(source, handle.id, many)
    await handle.hold(why="it moves")
    sent = [json.decode(one.payload) for one in await source.store.messages([(handle.id_bytes, 0)])]
    target = await moved(source, opened)
    there = target.process(handle.id)
    await sound(target, handle.id)
    await there.resume()
    await there.signal("go")
    assert await there.result(LIMIT) == sent


async def test_a_failed_process_that_is_retried_elsewhere_receives_what_it_had_only_heard(
    opened: Open, elsewhere: Open
) -> None:
    source, _ = await elsewhere(work=True, workflows=[code.collecting])
    handle = await source.start(code.collecting, 2)
    for n in range(2):
        await handle.signal("item", n)
    await until_heard(source, handle.id, 2)
    code.broken.add("count")
    await handle.signal("go")
    await until_row(source, handle.id, lambda row: row.status is Status.FAILED)
    code.broken.clear()
    target = await moved(source, opened)
    failed = await sound(target, handle.id)
    assert (failed.status, failed.seen, failed.inbox) == (Status.FAILED, 1, 3)
    await target.process(handle.id).retry()
    assert await target.process(handle.id).result(LIMIT) == [0, 1]
    await sound(target, handle.id)


async def test_what_was_heard_before_a_run_began_anew_is_received_elsewhere(opened: Open, elsewhere: Open) -> None:
    source, _ = await elsewhere(work=True, workflows=[code.collecting])
    handle = await source.start(code.collecting, 2, again=True)
    for n in range(2):
        await handle.signal("item", n)
    await until_heard(source, handle.id, 2)
    await handle.signal("go")
    await until_row(source, handle.id, lambda row: row.run == 2 and row.awaiting == "signal go" and row.owner is None)
    target = await moved(source, opened)
    there = target.process(handle.id)
    await sound(target, handle.id)
    await there.signal("go")
    assert await there.result(LIMIT) == [0, 1]
