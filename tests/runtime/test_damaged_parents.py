"""A parent whose row counts fewer events than its history has: ended without an event, it still tells its children."""

from __future__ import annotations

import asyncio

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import ProcessNotFound
from perdure.kernel.process import FINAL, Status
from perdure.turns.saga import saga
from tests.runtime.conftest import Open, until_row
from tests.runtime.kin import until_statuses
from tests.runtime.test_damaged_rows import damage

CHILDREN = 3


@step
async def refund(what: str) -> None:
    pass


@step(undo=refund)
async def pay(what: str) -> str:
    return what


@workflow
async def waits() -> str:
    return await receive("never", str)


@workflow
async def household() -> list[str]:
    async with saga():
        await pay("rent")
        return await asyncio.gather(*(waits.child() for _ in range(CHILDREN)))


async def damaged(opened: Open, url: str, *damages: tuple[str, str]) -> tuple[Engine, Handle[list[str]]]:
    """A household that waits for its children and cannot be written to any more; a worker for the children alone."""
    engine, _ = await opened(work=True, workflows=[household, waits])
    handle = await engine.start(household)
    await until_statuses(engine, "waits", running=CHILDREN)
    await until_row(engine, handle.id, lambda row: row.owner is None and row.awaiting is not None)
    await engine.close()
    for table, bad in (("process", "events: 1"), *damages):
        assert await damage(url, handle.id, table, bad)
    other, _ = await opened(work=True, workflows=[waits])
    return other, other.process(handle.id)


@pytest.mark.parametrize("portion", [500, 2])
@pytest.mark.parametrize("verb", ["terminate", "fail"])
async def test_one_that_is_ended_tells_its_children_and_lists_what_was_not_undone(
    opened: Open, store_url: str, monkeypatch: pytest.MonkeyPatch, verb: str, portion: int
) -> None:
    monkeypatch.setattr("perdure.limits.OUTBOX_RECORDS", portion)
    engine, handle = await damaged(opened, store_url)
    await getattr(handle, verb)(who="anna", why="its row is damaged")
    await until_statuses(engine, "waits", cancelled=CHILDREN)
    view = await handle.status()
    assert view.status in FINAL and view.error is not None
    assert "its row is damaged" in view.error.message and "not undone: pay" in view.error.message


async def test_one_that_is_removed_by_force_tells_its_children(opened: Open, store_url: str) -> None:
    engine, handle = await damaged(opened, store_url)
    await handle.remove(force=True, who="anna")
    with pytest.raises(ProcessNotFound):
        await handle.status()
    await until_statuses(engine, "waits", cancelled=CHILDREN)


async def test_one_that_has_no_whole_record_of_a_child_is_ended_all_the_same(opened: Open, store_url: str) -> None:
    payload = b'{"id":"00"}'.hex()
    bad = f"payload: x'{payload}'" if store_url.startswith("sqlite") else f"payload: decode('{payload}', 'hex')"
    _, handle = await damaged(opened, store_url, ("event", bad))
    await handle.terminate(who="anna")
    assert (await handle.status()).status is Status.CANCELLED
