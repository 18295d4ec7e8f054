"""What the store has given to an incarnation that has ended since is not held, and its steps do not begin (rule 11)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.store.base import Overdue, Search
from tests.runtime.conftest import LIMIT, Open, until

done: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    done.clear()


@step
async def acts(what: str) -> str:
    done.append(what)
    await asyncio.sleep(0)
    return what


@workflow
async def acting(what: str) -> str:
    return await acts(what)


@pytest.mark.parametrize("enlisted", [False, True], ids=["while the next one is enlisted", "after that"])
@pytest.mark.parametrize("door", ["start", "claim"])
async def test_rule_11_what_an_ended_incarnation_was_given_is_not_held(opened: Open, door: str, enlisted: bool) -> None:
    client, _ = await opened(workflows=[acting])
    heir, _ = await opened(work=True, workflows=[acting])
    engine, store = await opened(work=True, workflows=[acting])
    worker = engine.worker
    assert worker is not None
    assert heir.worker is not None
    await heir.worker.claimer.loop.stop()
    ended, enlist = worker.incarnation.id, asyncio.Event()
    late: list[str] = []

    async def given(name: str, what: Any) -> None:
        if name == "enlist" and not enlisted:
            await enlist.wait()
        if name != door or late or not await store.search(Search(overdue=Overdue.OWNED, owner=ended)):
            return
        late.append(name)
        await store.retire(ended, None, died=False)
        worker.retired(ended)
        await until(lambda: any(name == "enlist" for name, _ in store.calls))
        if enlisted:
            await until(lambda: worker.incarnation.id != ended)
        if door == "start":
            await worker.claimer.loop.stop()  # else it is in the middle of this claim
        heir.worker.claimer.loop.start()  # type: ignore[union-attr]
        await until(lambda: done)

    store.calls.clear()
    store.after = given
    handle = await (engine if door == "start" else client).start(acting, "once")
    await until(lambda: late and done)
    assert await handle.result(LIMIT) == "once"
    enlist.set()
    await until(lambda: worker.incarnation.id != ended and not engine.metrics()["in_hand"])
    assert done == ["once"], "its heir has run the step, and nobody else"
