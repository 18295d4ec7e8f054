"""Priorities of starts: whose turn it is when many wait for a worker, and that a wrong one is refused at the door."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import NamedWorkflow, step, workflow
from perdure.errors import InvalidInput
from perdure.runtime.options import WorkerOptions
from tests.runtime.conftest import LIMIT, Open

done: list[str] = []


@step
async def note(who: str) -> None:
    done.append(who)


@workflow(name="guest")
async def guest(who: str) -> None:
    await note(who)


async def test_of_those_that_wait_for_a_worker_the_first_ones_come_first(opened: Open) -> None:
    done.clear()
    client, _ = await opened()
    for who, priority in (("last", 9), ("ordinary", None), ("first", 0)):
        await client.start(guest.options(key=who, priority=priority), who)
    assert (await client.row((await client.handle(guest, "ordinary")).id)).priority == 4
    worker, _ = await opened(work=True, workflows=[guest], options=WorkerOptions(in_flight=1))
    for who in ("last", "ordinary", "first"):
        await (await worker.handle(guest, who)).result(LIMIT)
    assert done == ["first", "ordinary", "last"]


@pytest.mark.parametrize("wrong", [10, -1, True, 1.5, "0"])
def test_a_priority_that_is_none_is_refused(wrong: Any) -> None:
    for started in (guest, NamedWorkflow("guest")):
        with pytest.raises(InvalidInput, match=r"priority=.* is not valid. Give a whole number from 0 \(first\) to 9"):
            started.options(priority=wrong)
