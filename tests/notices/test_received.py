"""A receiver is told ``received`` once by each process, whichever commit is its first, and before its code acts."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Handle, Retry, continue_as_new, workflow
from perdure.engine import Engine
from perdure.errors import ProcessFailed
from tests.notices.flows import gatherer, listener, patient, renewed
from tests.notices.test_notices import heard
from tests.runtime.conftest import LIMIT, Open


@workflow(name="plain")
async def plain(left: int) -> int:
    """It continues as new some times, and does nothing else."""
    if left:
        continue_as_new(left - 1)
    return left


@workflow(name="unlucky", retry=Retry(attempts=2, first=0.01))
async def unlucky() -> None:
    """It fails at once, and once more."""
    raise ValueError("never")


HOSTED = [listener, gatherer, patient, renewed, plain, unlucky]


async def all_told(engine: Engine, receiver: Handle[Any], count: int) -> list[str]:
    """The statuses that a listener has noted, once there are so many; it is told of nothing more."""
    await heard(engine, receiver, count)
    await receiver.signal("end")
    return [status for _, status in await receiver.result(LIMIT)]


async def test_a_process_of_a_debounced_start_tells_that_it_has_begun(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    receiver = await engine.start(gatherer, 2)
    handle = await engine.start(plain.options(key="k", debounce=0.1, reply_to=receiver), 0)
    received, completed = await receiver.result(LIMIT)
    assert (received.status, completed.status) == ("received", "completed")
    assert received.process == completed.process == handle.id
    assert (received.key, completed.key) == ("k", None), "it gives its key back when it begins"


async def test_of_debounced_starts_only_the_last_address_is_told_and_not_before_it_begins(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    first, last = await engine.start(listener), await engine.start(listener)
    await engine.start(plain.options(key="k", debounce=3600, reply_to=first), 0)
    await engine.start(plain.options(key="k", debounce=3600, reply_to=first), 0)
    await engine.start(plain.options(key="k", debounce=0.1, reply_to=last), 0)
    assert await all_told(engine, last, 2) == ["received", "completed"]
    await first.signal("end")
    assert await first.result(LIMIT) == []


async def test_a_debounced_start_that_was_put_off_and_is_ended_before_it_begins_tells_both(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    receiver = await engine.start(listener)
    for _ in range(2):
        handle = await engine.start(plain.options(key="k", debounce=3600, reply_to=receiver), 0)
    await handle.terminate()
    assert await all_told(engine, receiver, 2) == ["received", "cancelled"]


async def test_a_debounced_start_that_was_held_when_it_was_put_off_tells_once_that_it_was_received(
    opened: Open,
) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    receiver = await engine.start(listener)
    handle = await engine.start(plain.options(key="k", debounce=3600, reply_to=receiver), 0)
    await handle.hold()
    await engine.start(plain.options(key="k", debounce=0.1, reply_to=receiver), 0)
    await handle.resume()
    assert await all_told(engine, receiver, 4) == ["held", "running", "received", "completed"]


async def test_an_earlier_address_of_debounced_starts_hears_what_people_do_and_not_that_it_has_begun(
    opened: Open,
) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    first, last = await engine.start(listener), await engine.start(listener)
    handle = await engine.start(plain.options(key="k", debounce=3600, reply_to=first), 0)
    await handle.edit_attributes(stage="late")
    await handle.hold()
    await engine.start(plain.options(key="k", debounce=0.1, reply_to=last), 0)
    await handle.resume()
    assert await all_told(engine, last, 3) == ["running", "received", "completed"]
    assert await all_told(engine, first, 1) == ["held"]


async def test_a_process_whose_attributes_were_edited_before_it_began_tells_that_it_has_begun(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    receiver = await engine.start(listener)
    handle = await engine.start(patient.options(delay=3600, reply_to=receiver))
    await handle.edit_attributes(stage="late")
    await handle.signal("go", "on")
    assert await all_told(engine, receiver, 2) == ["received", "completed"]


@pytest.mark.parametrize("client", [True, False], ids=["claimed", "begun at once"])
async def test_a_process_whose_first_commit_opens_its_next_run_tells_that_it_has_begun(
    opened: Open, client: bool
) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    starter = (await opened())[0] if client else engine
    receiver = await engine.start(listener)
    await starter.start(plain.options(reply_to=receiver), 2)
    failing = await starter.start(unlucky.options(reply_to=receiver))
    with pytest.raises(ProcessFailed):
        await failing.result(LIMIT)
    told = await all_told(engine, receiver, 4)
    assert sorted(told) == ["completed", "failed", "received", "received"]
