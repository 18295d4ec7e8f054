"""A machine whose method fails is broken until a person has put it right; what had ended is not done again."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Any

import pytest

from perdure import Engine, Handle, machine
from perdure.errors import (
    CallRefused,
    CallUnanswered,
    IllegalMove,
    InvalidInput,
    InvalidKey,
    ProcessBroken,
    ProcessFailed,
)
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.turns.patches import patched
from tests.machines.account import Account, Saver, Vault, done, gates, rates
from tests.runtime.conftest import LIMIT, Open, until, until_row


async def broken(opened: Open) -> tuple[Engine, Handle[Any]]:
    """An account of 5 that has failed to earn anything."""
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    assert await ann.call(Account.deposit, 5) == 5
    with pytest.raises(CallRefused):
        await ann.call(Account.earn, "the bank")
    await until_row(engine, ann.id, lambda row: row.status is Status.BROKEN)
    return engine, ann


async def test_an_error_breaks_it_says_where_and_the_caller_hears_at_once(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    assert await ann.call(Account.deposit, 5) == 5
    with pytest.raises(CallRefused, match="KeyError"):
        await ann.call(Account.earn, "the bank")
    row = await until_row(engine, ann.id, lambda row: row.status is Status.BROKEN)
    assert b"in Account.earn: " in (row.error or b"")
    with pytest.raises(ProcessBroken, match=r"in Account\.earn"):
        await ann.result(LIMIT)
    with pytest.raises(CallUnanswered, match="broken"):
        await ann.call(Account.deposit, 1)
    assert (await ann.status()).state["balance"] == 5


class Tally(machine.Machine):
    """Its ``add`` sets what is no field of it."""

    total: int = 0

    @machine.init
    def opened(self) -> None: ...

    @machine.call
    def add(self, number: int) -> int:
        self.total += number
        self.totla = number
        return self.total

    @machine.call
    def count(self) -> int:
        return self.total + self.doubled

    @cached_property
    def doubled(self) -> int:
        return 2 * self.total


async def test_a_value_that_would_be_lost_since_it_is_no_field_breaks_the_machine_at_once(opened: Open) -> None:
    engine, _ = await opened(work=True)
    misspelt, kept = await engine.start(Tally.opened), await engine.start(Tally.opened)
    with pytest.raises(CallRefused, match=r"Tally sets self\.totla, which is no field.*Did you mean 'total'\?"):
        await misspelt.call(Tally.add, 3)
    with pytest.raises(CallRefused, match=r"Tally sets self\.doubled, which is no field"):
        await kept.call(Tally.count)
    row = await until_row(engine, misspelt.id, lambda row: row.status is Status.BROKEN)
    assert b"in Tally.add: " in (row.error or b"")
    assert (await misspelt.status()).state["total"] == 0


async def test_a_retry_runs_the_method_again_from_the_step_that_failed_and_what_waits_comes_after_it(
    opened: Open,
) -> None:
    _, ann = await broken(opened)
    await ann.signal(Account.note, "waiting")
    rates["the bank"] = 10
    await ann.retry()
    assert await ann.call(Account.history) == ["+5", "waiting"]
    assert (await ann.status()).state["balance"] == 15
    assert (done["asking"], done["asked"], done["opened for Ann"]) == (1, 2, 1)


async def test_a_retry_without_a_cure_breaks_it_again_and_a_second_cure_helps(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    with pytest.raises(CallRefused):
        await ann.call(Account.earn, "the bank")
    for tried in (2, 3):
        await until_row(engine, ann.id, lambda row: row.status is Status.BROKEN)
        await ann.retry()
        await until(lambda tried=tried: done["asked"] == tried)
    await until_row(engine, ann.id, lambda row: row.status is Status.BROKEN)
    rates["the bank"] = 1
    await ann.retry()
    assert await ann.call(Account.deposit, 1) == 2


async def test_a_result_given_by_hand_stands_for_the_step_that_failed(opened: Open) -> None:
    _, ann = await broken(opened)
    await ann.set_result("rate", 7)
    assert await ann.call(Account.deposit, 1) == 13
    assert done["asked"] == 1


async def test_a_step_of_a_method_that_has_ended_is_not_to_be_run_again(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann", 10)
    assert await ann.call(Account.withdraw, 5) == 5
    with pytest.raises(Exception, match="no step 'book' has been answered"):
        await ann.restart_from("book")


async def test_a_machine_is_not_restarted_since_its_fields_would_be_lost(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann", 10)
    assert await ann.call(Account.deposit, 5) == 15
    with pytest.raises(IllegalMove, match="its fields would be lost"):
        await ann.restart()
    assert await ann.call(Account.deposit, 5) == 20


async def test_a_machine_is_not_forked_since_its_former_fields_are_not_kept(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann", 10)
    assert await ann.call(Account.deposit, 5) == 15
    with pytest.raises(IllegalMove, match="cannot fork a machine"):
        await ann.fork()


async def test_a_machine_that_is_held_goes_on_where_it_was(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann", 10)
    slow = asyncio.create_task(ann.call(Account.slow, "a"))
    await until(lambda: done["began a"])
    await ann.hold()
    later = asyncio.create_task(ann.call(Account.deposit, 5))
    gates["a"].set()
    await ann.resume()
    assert (await slow, await later) == ("a", 15)
    assert await ann.call(Account.history) == ["a", "+5"]


async def test_a_cancelled_machine_ends_where_it_waits_and_inside_a_method(opened: Open) -> None:
    engine, _ = await opened(work=True)
    idle, busy = await engine.start(Account.opened, "Ann"), await engine.start(Account.opened, "Ben")
    assert await idle.call(Account.deposit, 1) == 1
    slow = asyncio.create_task(busy.call(Account.slow, "a"))
    await until(lambda: done["began a"])
    for handle in (idle, busy):
        await handle.cancel()
        await until_row(engine, handle.id, lambda row: row.status is Status.CANCELLED)
    with pytest.raises(CallUnanswered):
        await slow
    gates["a"].set()


async def test_a_method_that_leaves_tasks_and_steps_behind_has_ended_with_all_of_them(opened: Open) -> None:
    engine, _ = await opened(work=True)
    saver = await engine.start(Saver.begun)
    assert await saver.call(Saver.hasty) == "done"
    assert await saver.call(Saver.hasty) == "done"
    row = await until_row(engine, saver.id, lambda row: row.owner is None)
    assert row.awaiting == "signal hasty, signal twice, signal undoing, signal anew"


async def test_a_method_takes_one_action_and_an_undo_needs_a_saga(opened: Open) -> None:
    engine, _ = await opened(work=True)
    for method, text in (
        (Saver.twice, "a method takes one action"),
        (Saver.undoing, "Put `async with saga"),
        (Saver.anew, "anew by itself"),
    ):
        saver = await engine.start(Saver.begun)
        with pytest.raises(CallRefused, match=text):
            await saver.call(method)


async def test_a_person_marks_a_process_as_failed_and_a_retry_takes_it_back(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann", 10)
    assert await ann.call(Account.deposit, 5) == 15
    with pytest.raises(CallRefused):
        await ann.call(Account.earn, "the bank")
    await until_row(engine, ann.id, lambda row: row.status is Status.BROKEN)
    await ann.fail(who="Bob", why="the bank is gone")
    with pytest.raises(ProcessFailed, match="GivenUp: marked as failed by Bob because: the bank is gone"):
        await ann.result(LIMIT)
    rates["the bank"] = 1
    await ann.retry(who="Bob", why="it is back")
    assert await ann.call(Account.deposit, 4) == 20
    assert await ann.call(Account.history) == ["+5", "+4"]
    assert (done["asking"], done["opened for Ann"]) == (1, 1)


async def test_a_repair_runs_in_place_of_the_method_that_has_failed_and_before_what_waits(opened: Open) -> None:
    engine, ann = await broken(opened)
    await ann.signal(Account.note, "waiting")
    await ann.repair(Account.corrected.options(who="Bob", why="by the books"), 70)
    assert await ann.call(Account.history) == ["+5", "=70", "waiting"]
    assert await ann.call(Account.deposit, 1) == 71
    assert (done["asked"], done["=70"]) == (1, 1)
    [event] = [one for one in await ann.history() if one.type is EventType.REPAIRED]
    assert event.name == "corrected" and b'"who":"Bob"' in (event.payload or b"") and b"[70]" in (event.payload or b"")
    await engine.close(0)
    again, _ = await opened(work=True)
    assert await again.process(ann.id).call(Account.history) == ["+5", "=70", "waiting", "+1"]
    assert done["=70"] == 1


async def test_a_repair_that_fails_breaks_it_again_and_may_be_retried_or_replaced(opened: Open) -> None:
    engine, ann = await broken(opened)
    await ann.repair("corrected", [-1])
    for way in (lambda: ann.retry(), lambda: ann.repair("no such method"), lambda: ann.repair(Account.corrected, 3)):
        row = await until_row(engine, ann.id, lambda row: row.status is Status.BROKEN)
        version = row.version
        await way()
        await until_row(engine, ann.id, lambda row, version=version: row.version > version + 1)
    assert await ann.call(Account.history) == ["+5", "=3"]
    assert (done["=-1"], done["=3"]) == (1, 1)


async def test_of_repairs_with_one_key_only_the_first_counts_however_it_ended(opened: Open) -> None:
    engine, ann = await broken(opened)
    for _ in range(2):  # the first one fails
        await ann.repair(Account.corrected.options(key="r-1"), -1)
    row = await until_row(engine, ann.id, lambda row: row.status is Status.BROKEN)
    await ann.repair("corrected", [-1], key="r-1")
    assert (await engine.row(ann.id)).version == row.version and done["=-1"] == 1
    await ann.repair("corrected", [3], key="r-2")
    assert await ann.call(Account.history) == ["+5", "=3"]
    await ann.repair(Account.corrected.options(key="r-2"), 4)
    assert await ann.call(Account.history) == ["+5", "=3"]
    with pytest.raises(IllegalMove, match="cannot repair a process that is running"):
        await ann.repair(Account.corrected.options(key="r-3"), 4)
    with pytest.raises(InvalidKey, match="the key of the repair"):
        await ann.repair("corrected", [4], key="")


async def test_only_a_broken_machine_is_repaired_and_only_with_arguments_that_can_be(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    assert await ann.call(Account.deposit, 5) == 5
    with pytest.raises(IllegalMove, match="cannot repair a process that is running"):
        await ann.repair(Account.corrected, 1)
    with pytest.raises(InvalidInput, match="Give a list"):
        await ann.repair("corrected", 5)
    with pytest.raises(InvalidInput, match="corrected"):
        await ann.repair(Account.corrected)  # type: ignore[call-overload]


@pytest.mark.parametrize("cure", ["retry", "by hand", "restart"])
async def test_a_beginning_that_fails_is_cured_like_any_method_and_may_be_begun_again(opened: Open, cure: str) -> None:
    engine, _ = await opened(work=True)
    vault = await engine.start(Vault.opened, "the bank")
    for tried in (1, 2):
        row = await until_row(engine, vault.id, lambda row: row.status is Status.BROKEN)
        assert b"in Vault.opened: " in (row.error or b"") and done["asked"] == tried
        with pytest.raises(IllegalMove, match="once it has begun"):
            await vault.repair(Vault.corrected)
        if tried == 1:
            await vault.retry()
            await until(lambda: done["asked"] == 2)
    rates["the bank"] = 7
    if cure == "by hand":
        await vault.set_result("rate", 8)
    elif cure == "retry":
        await vault.retry()
    else:
        await vault.restart()
    assert await vault.call(Vault.terms) == (8 if cure == "by hand" else 7)
    assert done["unlocked"] == (2 if cure == "restart" else 1)


class Match(machine.Machine):
    """It may be lost, and is won at the second try."""

    points: int = 0

    @machine.init
    def begun(self) -> None:
        pass

    @machine.call
    async def lose(self) -> str:
        """Fail."""
        self.points += 1
        machine.fail(ValueError(f"{self.points} to nothing"))
        return "lost"

    @machine.call
    def quarrel(self) -> None:
        """Fail with what is no error."""
        machine.fail("an error")  # type: ignore[arg-type]

    @machine.signal
    def win(self) -> None:
        """End."""
        machine.complete(self.points)


async def test_a_machine_fails_when_its_method_says_so_and_a_retry_lets_it_wait_again(opened: Open) -> None:
    engine, _ = await opened(work=True)
    match = await engine.start(Match.begun)
    for lost in (1, 2):
        assert await match.call(Match.lose) == "lost"
        with pytest.raises(ProcessFailed, match=f"ValueError: {lost} to nothing"):
            await match.result(LIMIT)
        assert (await engine.row(match.id)).status is Status.FAILED
        await match.retry()
        await until_row(engine, match.id, lambda row: row.status is Status.RUNNING)
    await match.signal(Match.win)
    assert await match.result(LIMIT) == 2


async def test_a_machine_fails_with_an_error_and_nothing_else(opened: Open) -> None:
    engine, _ = await opened(work=True)
    match = await engine.start(Match.begun)
    with pytest.raises(CallRefused, match="needs an error"):
        await match.call(Match.quarrel)


async def test_what_came_before_a_repair_is_not_replayed_though_the_worker_dies_right_after_it(opened: Open) -> None:
    engine, ann = await broken(opened)
    await ann.repair(Account.settled, 100)
    await until_row(engine, ann.id, lambda row: b'"balance":100' in row.state and row.owner is None)
    await engine.close(0)
    again, _ = await opened(work=True)
    assert await again.process(ann.id).call(Account.deposit, 1) == 101
    assert await again.process(ann.id).call(Account.history) == ["+5", "+1"]


class Till(machine.Machine, name="till"):
    """A till that breaks, and whose repair is changed code."""

    cents: int = 0
    ways: list[bool] = machine.field(default_factory=list)

    @machine.init
    def opened(self) -> None:
        pass

    @machine.call
    def pay(self, cents: int) -> list[bool]:
        self.ways = [*self.ways, patched("rounded")]
        if cents < 0:
            raise ValueError("nothing is paid back here")
        self.cents += cents
        return self.ways

    @machine.repair
    def counted(self, cents: int) -> None:
        self.ways = [*self.ways, patched("rounded"), patched("counted")]
        self.cents = cents


@pytest.mark.parametrize("paid", [0, 1], ids=["a new patch", "one taken before"])
async def test_a_repair_takes_the_new_way_of_changed_code(opened: Open, paid: int) -> None:
    engine, _ = await opened(work=True, workflows=[Till])
    till = await engine.start(Till.opened)
    for _ in range(paid):
        assert await till.call(Till.pay, 1) == [True]
    with pytest.raises(CallRefused):
        await till.call(Till.pay, -1)
    await until_row(engine, till.id, lambda row: row.status is Status.BROKEN)
    await till.repair(Till.counted, 7)
    assert await till.call(Till.pay, 1) == [True] * (paid + 3)
    await engine.close(0)
    again, _ = await opened(work=True, workflows=[Till])
    assert await again.process(till.id).call(Till.pay, 1) == [True] * (paid + 4)
