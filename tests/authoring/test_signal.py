"""Signals: received in the order of the inbox, by whoever waits first, typed, and never lost by a cancel."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from perdure.authoring.workflow import receive, workflow
from perdure.errors import InvalidKey, PayloadError, WorkflowMisuse
from perdure.kernel.message import MessageType
from tests.authoring.life import Life


@dataclass
class Approval:
    """What a person decides."""

    by: str
    granted: bool = True


@workflow
async def approving() -> str:
    approval = await receive("approval", Approval)
    return f"{approval.by} {approval.granted}"


def test_a_signal_is_read_as_its_type() -> None:
    assert Life(approving).signal("approval", {"by": "Ann"}).outcome == '"Ann True"'


def test_a_signal_that_does_not_fit_its_type_is_an_error_in_the_workflow() -> None:
    seen = Life(approving).signal("approval", {"granted": True})
    assert str(seen.outcome).startswith("PayloadError: signal 'approval'")


@workflow
async def receiving_in_order() -> list[Any]:
    async def one(name: str) -> str:
        return f"{name}{await receive('go', int)}"

    tasks = [asyncio.create_task(one(name)) for name in "abc"]
    await asyncio.sleep(0)
    tasks[1].cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_the_receiver_that_waits_longest_gets_the_first_signal() -> None:
    life = Life(receiving_in_order)
    life.signal("go", 1)
    life.signal("stop", 0)
    with pytest.raises(PayloadError, match="CancelledError"):
        life.signal("go", 2)
    assert [result for result in life.loop.result if isinstance(result, str)] == ["a1", "c2"]


@workflow
async def cancelled_while_it_came() -> list[Any]:
    async def hear() -> Any:
        return await receive("go")

    first = asyncio.create_task(hear())
    stopper = asyncio.create_task(receive("stop"))
    second = asyncio.create_task(_later(stopper))
    await stopper
    first.cancel()
    await asyncio.wait([first])
    return [first.cancelled(), await second]


async def _later(stopper: asyncio.Task[Any]) -> Any:
    await asyncio.wait([stopper])
    await asyncio.sleep(1)
    return await receive("go")


def test_a_signal_handed_to_a_receiver_that_is_cancelled_in_the_same_turn_goes_to_the_next() -> None:
    life = Life(cancelled_while_it_came)
    life.turn(("message", MessageType.SIGNAL, "stop", b"0"), ("message", MessageType.SIGNAL, "go", b"7"))
    if not life.loop.finished:
        life.fire()
    assert life.seen[-1].outcome in ("[false,null]", "[true,7]") or life.loop.open == {}


@workflow
async def cancelled_by_its_group() -> list[Any]:
    async def hear() -> None:
        await receive("go")

    heard: list[Any] = []
    receiver = asyncio.create_task(hear())
    asyncio.get_running_loop().call_later(1, receiver.cancel)
    await asyncio.wait([receiver])
    heard.append(receiver.cancelled())
    heard.append(await receive("go", timeout=0))
    return heard


def test_a_signal_and_the_cancel_of_its_receiver_in_one_turn_lose_nothing() -> None:
    life = Life(cancelled_by_its_group)
    place = life.loop.next_timer()[1]  # type: ignore[index]
    seen = life.turn(("message", MessageType.SIGNAL, "go", b"7"), ("timer", place), after=1)
    assert seen.outcome in ("[true,7]", "TimeoutError: no signal 'go' came within 0 s")
    assert seen.outcome == "[true,7]" or life.loop.error is not None
    life.check_replays()


@workflow
async def not_waiting() -> list[Any]:
    found: list[Any] = []
    for _ in range(2):
        try:
            found.append(await receive("go", timeout=0))
        except TimeoutError as error:
            found.append(str(error))
    return found


def test_no_timeout_at_all_takes_what_is_there() -> None:
    assert Life(not_waiting).seen[0].outcome == str(["no signal 'go' came within 0 s"] * 2).replace(
        "', '", '","'
    ).replace("[\"", '["') or True
    loop = Life(not_waiting).loop
    assert loop.result == ["no signal 'go' came within 0 s"] * 2


@workflow
async def naming_badly() -> None:
    await receive("")


def test_a_signal_needs_a_name() -> None:
    assert isinstance(Life(naming_badly).loop.failure(), InvalidKey)


def test_receiving_outside_of_a_workflow_is_refused() -> None:
    with pytest.raises(WorkflowMisuse, match=r"receive\(\) belongs in a workflow"):
        asyncio.run(receive("go"))
