"""Signals: received in the order of the inbox, by whoever waits first, typed, and never lost by a cancel."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from perdure.authoring.workflow import receive, workflow
from perdure.errors import InvalidKey, WorkflowMisuse
from perdure.kernel.message import MessageType
from perdure.turns.loop import TurnLoop
from tests.authoring.life import BIRTH, ID, SEED, Life


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
async def receiving_in_order() -> list[str]:
    async def one(name: str) -> str:
        return f"{name}{await receive('go', int)}"

    first, second, third = (asyncio.create_task(one(name)) for name in "abc")
    await asyncio.sleep(0)
    second.cancel()
    return [*await asyncio.gather(first, third), f"then {await receive('go')}"]


def test_the_receiver_that_waits_longest_gets_the_first_signal() -> None:
    life = Life(receiving_in_order)
    life.signal("stop", 0)
    for number in (1, 2, 3):
        life.signal("go", number)
    assert life.seen[-1].outcome == '["a1","c2","then 3"]'
    life.check_replays()


@workflow
async def cancelled_as_it_comes() -> list[Any]:
    receiver = asyncio.create_task(receive("go"))
    asyncio.get_running_loop().call_later(1, receiver.cancel)
    await asyncio.wait([receiver])
    if receiver.cancelled():
        return ["cancelled", await receive("go", timeout=0)]
    return ["heard", receiver.result()]


@pytest.mark.parametrize(("signal_first", "outcome"), [(False, '["cancelled",7]'), (True, '["heard",7]')])
def test_a_signal_whose_receiver_is_cancelled_in_the_same_turn_is_not_lost(signal_first: bool, outcome: str) -> None:
    deliveries = [("timer", "1"), ("message", MessageType.SIGNAL, "go", b"7")]
    life = Life(cancelled_as_it_comes)
    assert life.loop.next_timer() == (BIRTH + 1_000_000, "1")
    assert life.turn(*(reversed(deliveries) if signal_first else deliveries), after=1).outcome == outcome
    life.check_replays()


@workflow
async def cancelled_beside_another() -> list[Any]:
    first, second = asyncio.create_task(receive("go")), asyncio.create_task(receive("go"))
    asyncio.get_running_loop().call_later(1, first.cancel)
    await asyncio.wait([first])
    return [first.cancelled(), await second]


def test_a_signal_given_back_goes_to_the_receiver_that_waits() -> None:
    life = Life(cancelled_beside_another)
    seen = life.turn(("timer", "1"), ("message", MessageType.SIGNAL, "go", b"7"), after=1)
    assert seen.outcome == "[true,7]"


@workflow
async def cancelled_together(receivers: int) -> list[Any]:
    async def all_cancelled() -> bool:
        try:
            async with asyncio.timeout(1):
                await asyncio.gather(*(receive("go") for _ in range(receivers)))
        except TimeoutError:
            return True
        return False

    return [await all_cancelled(), *[await receive("go", timeout=0) for _ in range(4)]]


@pytest.mark.parametrize("receivers", [2, 3, 4])
def test_signals_that_several_cancelled_receivers_give_back_stay_in_their_order(receivers: int) -> None:
    """Those that no receiver had got come after them."""
    life = Life(cancelled_together, (receivers,))
    signals = [("message", MessageType.SIGNAL, "go", b"%d" % number, number) for number in (1, 2, 3, 4)]
    assert life.turn(("timer", "1"), *signals, after=1).outcome == "[true,1,2,3,4]"
    life.check_replays()
    assert life.loop.mailbox("go").size == 0


@workflow
async def not_waiting() -> list[Any]:
    found: list[Any] = []
    for _ in range(2):
        try:
            found.append(await receive("go", timeout=0))
        except TimeoutError as error:
            found.append(str(error))
    return found


@workflow
async def looking_before_a_sleep() -> list[Any]:
    try:
        found = [await receive("go", timeout=0)]
    except TimeoutError:
        found = ["none"]
    await asyncio.sleep(1)
    return [*found, await receive("go")]


def test_a_look_for_a_signal_is_not_taken_for_a_timer_at_a_replay() -> None:
    life = Life(looking_before_a_sleep)
    life.turn(("timer", "1"), after=1)
    seen = life.turn(("message", MessageType.SIGNAL, "go", b"7"))
    assert seen.outcome == '["none",7]'
    life.check_replays()


def test_no_time_at_all_takes_only_what_is_there() -> None:
    loop = TurnLoop(ID, b"seed")
    loop.begin(not_waiting.function)
    loop.message(MessageType.SIGNAL, "go", b"7")
    loop.run(BIRTH)
    assert loop.result == [7, "no signal 'go' came within 0 s"]


@workflow
async def polling(rounds: int, cancelling: bool) -> str:
    for _ in range(rounds):
        try:
            if cancelling:
                await asyncio.wait_for(receive("stop", str), 60)
            else:
                await receive("stop", str, timeout=60)
        except TimeoutError:
            continue
    return await receive("stop", str)


@pytest.mark.parametrize("cancelling", [False, True], ids=["expired", "cancelled"])
@pytest.mark.parametrize("other", [False, True], ids=["alone", "beside another"])
def test_a_receiver_that_waits_no_more_is_forgotten(cancelling: bool, other: bool) -> None:
    @workflow
    async def waiting() -> str:
        beside = [asyncio.create_task(receive("stop", str))] if other else []
        await asyncio.sleep(0)
        return "".join([await polling.function(500, cancelling), *[await one for one in beside]])

    life = Life(waiting)
    box = life.loop.mailbox("stop")
    for _ in range(500):
        life.fire()
        assert len(box.receivers) == 1 + other
    life.signal("stop", "a")
    assert (life.signal("stop", "b") if other else life.seen[-1]).outcome == ('"ba"' if other else '"a"')
    assert not box.receivers


@workflow
async def naming_badly() -> None:
    await receive("")


def test_a_signal_needs_a_name() -> None:
    assert isinstance(Life(naming_badly).loop.failure(), InvalidKey)


def test_receiving_outside_of_a_workflow_is_refused() -> None:
    with pytest.raises(WorkflowMisuse, match=r"receive\(\) belongs in a workflow"):
        asyncio.run(receive("go"))


@workflow
async def giving_up(rounds: int) -> bool:
    async def hasty() -> None:
        try:
            await receive("go", timeout=0)
        except TimeoutError:
            await receive("never")

    task = asyncio.create_task(hasty())
    for _ in range(rounds):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


@pytest.mark.parametrize("rounds", range(6))
def test_a_receiver_that_is_cancelled_in_the_moment_in_which_its_time_is_over_is_cancelled(rounds: int) -> None:
    life = Life(giving_up, (rounds,))
    assert life.seen[-1].outcome == "true"
    life.check_replays()


trail: list[str] = []


@workflow
async def cut_short(rounds: int) -> None:
    async def hasty() -> None:
        try:
            await receive("go", timeout=0)
        except TimeoutError:
            trail.append("on")
            await receive("never")
        finally:
            trail.append("end")

    task = asyncio.create_task(hasty())
    for _ in range(rounds):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    trail.append(f"cancelled {task.cancelled()}")
    await receive("more")


@pytest.mark.parametrize("backlog", [0, 1])  # with 1 a letter of some name is in the store: "go" must be looked up
@pytest.mark.parametrize("rounds", range(6))
def test_whenever_a_receiver_is_cancelled_a_replay_goes_the_same_way(rounds: int, backlog: int) -> None:
    loop = TurnLoop(ID, SEED, backlog=backlog)
    loop.begin(cut_short.function, (rounds,))
    trail.clear()
    loop.run(BIRTH)
    lived = list(trail)
    again = TurnLoop(ID, SEED, backlog=backlog)
    again.begin_replay(frozenset(loop.looks), None)
    again.begin(cut_short.function, (rounds,))
    trail.clear()
    again.run(BIRTH)
    assert trail == lived and lived[-1] == "cancelled True"
    assert again.looks == () and bool(loop.looks) == loop.notes == (backlog > 0 and rounds > 0)
