"""A start that brings a signal, on both stores: both in one transaction, or the signal to who has the key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.errors import InvalidInput, KeyConflict, PayloadError, StoreUnavailable
from perdure.kernel.commit import Start
from perdure.kernel.message import SendVerdict
from perdure.kernel.retry import Retry
from tests.runtime.conftest import LIMIT, Open, until_row

done: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    done.clear()


@step(retry=Retry.NONE)
async def act(what: str) -> str:
    done.append(what)
    return what


@workflow
async def basket(owner: str) -> list[Any]:
    items: list[Any] = []
    while (item := await receive("add")) is not None:
        items.append(item)
    return items


@workflow
async def busy(owner: str) -> list[Any]:
    heard = asyncio.create_task(receive("add"))
    await asyncio.sleep(0)
    if heard.done():
        return ["heard at once"]
    return [await act("step"), await heard]


@workflow
async def brief(owner: str) -> str:
    return owner


FLOWS = [basket, busy, brief]


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_process_hears_the_signal_that_came_with_its_start(opened: Open, elsewhere: bool) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    if elsewhere and ":memory:" in engine.store.url:
        pytest.skip("one store at a time on this database")
    client = (await opened(workflows=FLOWS))[0] if elsewhere else engine
    handle = await client.start(basket.options(key="ann", signal=("add", "bread")), "Ann")
    assert (handle.created, handle.sent) == (True, SendVerdict.DELIVERED)
    assert not [call for call in store.calls if call[0] == "send"]
    await handle.signal("add", "milk")
    await handle.signal("add")
    assert await handle.result(LIMIT) == ["bread", "milk"]
    assert [message.number for message in await store.messages([(handle.id_bytes, 0)])] == [1, 2, 3]


async def test_who_has_the_key_gets_the_signal_whoever_has_it_in_hand(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    first = await engine.start(basket.options(key="ann", signal=("add", "bread", "one")), "Ann")
    again = await engine.start(basket.options(key="ann", signal=("add", "bread", "one")), "Ann")
    assert (again.id, again.created, again.sent) == (first.id, False, SendVerdict.DUPLICATE)
    await until_row(engine, first.id, lambda row: row.owner is None and row.seen == 1)
    third = await engine.start(basket.options(key="ann", signal=("add", "milk", "two")), "Ann")
    assert (third.created, third.sent) == (False, SendVerdict.DELIVERED)
    with pytest.raises(KeyConflict):
        await engine.start(basket.options(key="ann", signal=("add", "beer", "three")), "Bob")
    await first.signal("add")
    assert await first.result(LIMIT) == ["bread", "milk"]
    late = await engine.start(basket.options(key="ann", signal=("add", "wine")), "Ann")
    assert (late.id, late.sent) == (first.id, SendVerdict.FINISHED)
    assert [message.name for message in await store.messages([(first.id_bytes, 0)])] == ["add"] * 4


async def test_rule_18_the_signal_is_heard_before_what_the_first_turn_asked_for_begins(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(busy.options(signal=("add", 1)), "Ann")
    assert await handle.result(LIMIT) == ["step", 1]
    starts: list[Start] = [start for name, starts in store.calls if name == "start" for start in starts]
    assert starts[0].process.owner is not None  # started in hand: no claim, no wake-up
    types = [event.type.name for event in await engine.process(handle.id).history()]
    assert types == ["MESSAGE_RECEIVED", "STEP_COMPLETED", "COMPLETED"]


async def test_a_process_that_ends_in_its_first_turn_has_heard_its_signal(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(brief.options(signal=("add", 1)), "Ann")
    assert await handle.result(LIMIT) == "Ann"
    row = await engine.row(handle.id)
    assert (row.inbox, row.seen) == (1, 1)


async def test_a_start_whose_answer_was_lost_brings_its_signal_once(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    lost: list[str] = []

    async def after(name: str, argument: Any) -> None:
        if name == "start" and not lost:
            lost.append(name)
            raise StoreUnavailable("the answer is lost; try again")

    store.after = after
    handle = await engine.start(basket.options(key="ann", signal=("add", "bread")), "Ann")
    assert (handle.created, handle.sent, lost) == (True, SendVerdict.DELIVERED, ["start"])
    await handle.signal("add")
    assert await handle.result(LIMIT) == ["bread"]


async def test_a_signal_that_cannot_be_sent_is_refused_before_anything_is_stored(opened: Open) -> None:
    engine, _ = await opened(workflows=FLOWS)
    for bad in ("add", ("add",), ("", 1), ("add", 1, ""), ("add", 1, "k", 2), ["add", 1]):
        with pytest.raises(InvalidInput):
            await engine.start(basket.options(key="ann", signal=bad), "Ann")  # type: ignore[arg-type]
    with pytest.raises(PayloadError):
        await engine.start(basket.options(key="ann", signal=("add", object())), "Ann")
    assert await engine.count() == {}
