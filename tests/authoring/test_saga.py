"""Sagas in the turn loop: what is undone, in which order, with what, and that replay comes to the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.errors import Permanent, StepError
from perdure.turns.saga import saga
from tests.authoring.life import Life, cancelled_anywhere, lived


@step
def unbook(what: str, result: list[str] | None) -> None:
    """Undo a booking."""


@step(undo=unbook)
def book(what: str) -> list[str]:
    return [f"ticket {what}"]


@step(undo=unbook)
def refused(what: str) -> list[str]:
    raise Permanent("sold out")


@step
def look(what: str) -> str:
    return what


def undos(life: Life) -> list[list[str]]:
    """What each turn asked to be undone, in words, for turns that asked for it."""
    asked = [[f"{raw.decode()}" for _, place, raw in seen.asked if place.startswith("undo/")] for seen in life.seen]
    return [turn for turn in asked if turn]


def finish(life: Life) -> Life:
    """Answer one open step after the other until the process has ended."""
    while not life.loop.finished:
        life.turn(life.answer(next(iter(life.loop.open.values()))))
    life.check_replays()
    return life


# -- order ----------------------------------------------------------------------------------------------------


@workflow
async def one_after_another() -> None:
    await book("a")
    await look("x")
    await book("b")
    await book("c")
    raise ValueError("no")


def test_steps_are_undone_in_reverse_order_with_what_they_answered() -> None:
    life = finish(Life(one_after_another))
    assert undos(life) == [['["c",["ticket c"]]'], ['["b",["ticket b"]]'], ['["a",["ticket a"]]']]
    assert life.seen[-1].outcome == "ValueError: no"


@workflow
async def side_by_side(sequential: bool) -> None:
    async with saga(sequential=sequential):
        await book("a")
        await asyncio.gather(book("b"), book("c"))
        await book("d")
        raise ValueError("no")


def test_what_ran_side_by_side_is_undone_side_by_side() -> None:
    life = finish(Life(side_by_side, [False]))
    assert [[call[2:3] for call in turn] for turn in undos(life)] == [["d"], ["c", "b"], ["a"]]


def test_a_sequential_saga_undoes_one_at_a_time() -> None:
    life = finish(Life(side_by_side, [True]))
    assert [[call[2:3] for call in turn] for turn in undos(life)] == [["d"], ["c"], ["b"], ["a"]]


@workflow
async def branches() -> None:
    async def branch(name: str, length: int) -> None:
        for number in range(length):
            await book(f"{name}{number}")

    await book("first")
    await asyncio.gather(branch("a", 3), branch("b", 1), branch("c", 2))
    await book("last")
    await refused("x")


def moments(life: Life) -> dict[tuple[str, str], tuple[int, int]]:
    """For every step: the turn that asked for it, and the turn that heard of its end (or after all, if none did)."""
    asked = {(name, place): turn for turn, seen in enumerate(life.seen) for name, place, _ in seen.asked}
    ended = {slot: turn for turn, seen in enumerate(life.seen) for slot in seen.dropped}
    for turn, (_, deliveries) in enumerate(life.turns, 1):
        ended |= {(name, place): turn for kind, place, name, *_ in deliveries if kind in ("done", "failed")}
    return {slot: (turn, ended.get(slot, len(life.seen))) for slot, turn in asked.items()}


def disorder(life: Life) -> Iterator[str]:
    """Pairs of steps of which the later one was not undone before the earlier one was asked to be."""
    at = moments(life)
    undone = {f"{name}:{place}": at["unbook", f"undo/{name}:{place}"] for name, place in at if name != "unbook"}
    steps = {f"{name}:{place}": turns for (name, place), turns in at.items() if name != "unbook"}
    for one, (_, ended) in steps.items():
        for other, (asked, _) in steps.items():
            if asked >= ended and undone[other][1] > undone[one][0]:
                yield f"{other} came after {one}, and was undone after it"
            if undone[one][0] <= max(turns[1] for turns in steps.values()) - 1:
                yield f"{one} was undone while steps were under way"


@pytest.mark.parametrize("seed", range(60))
def test_whatever_the_order_of_answers_what_came_later_is_undone_first(seed: int) -> None:
    life = Life(branches).live(Random(seed), cancel_at=seed // 3 if seed % 3 == 0 else None)
    assert list(disorder(life)) == []
    life.check_replays()


# -- what is covered --------------------------------------------------------------------------------------------


@workflow
async def fails_beside() -> None:
    await asyncio.gather(book("a"), refused("b"))


def test_rule_23_undo_waits_for_the_steps_in_flight_and_covers_what_has_failed() -> None:
    life = Life(fails_beside)
    life.finish_step("refused")
    assert (undos(life), life.loop.awaiting()) == ([], "step book")
    life.finish_step("book")
    assert (undos(life), life.loop.awaiting()) == ([['["a",["ticket a"]]', '["b",null]']], "undo unbook")
    finish(life)
    assert "sold out" in str(life.seen[-1].outcome)


def test_rule_23_a_cancel_while_steps_are_in_flight_cuts_the_wait_and_their_end_is_unknown() -> None:
    life = Life(fails_beside)
    life.finish_step("refused")
    seen = life.cancel()
    assert seen.dropped == [("book", "1")]
    assert undos(life) == [['["a",null]', '["b",null]']]
    finish(life)
    assert "sold out" in str(life.seen[-1].outcome)


@workflow
async def books_for_long() -> None:
    await book("a")
    await book("b")


@pytest.mark.parametrize(("answered", "covered"), [(0, [["a"]]), (1, [["b"], ["a"]])])
def test_rule_23_a_step_cancelled_in_flight_is_undone_although_its_end_is_unknown(
    answered: int, covered: list[list[str]]
) -> None:
    life = Life(books_for_long)
    for number in range(answered):
        life.finish_step("book", str(number + 1))
    life.cancel()
    finish(life)
    assert [[call[2:3] for call in turn] for turn in undos(life)] == covered
    assert undos(life)[0][0].endswith(",null]")
    assert life.seen[-1].outcome == "cancelled"


@workflow
async def takes_back_at_once() -> None:
    await book("a")
    asyncio.ensure_future(book("b")).cancel()
    raise ValueError("no")


def test_a_step_taken_back_in_the_turn_that_asked_for_it_never_began_and_is_not_undone() -> None:
    assert undos(finish(Life(takes_back_at_once))) == [['["a",["ticket a"]]']]


@workflow
async def promised() -> None:
    await pay(look("a"))
    raise ValueError("no")


@step
def repay(order: str) -> None:
    """Undo a payment."""


@step(undo=repay)
def pay(order: str) -> None:
    """Pay."""


def test_a_step_with_a_promised_argument_is_undone_with_the_value() -> None:
    assert undos(finish(Life(promised))) == [['["a"]']]


@workflow
async def ends_well() -> str:
    async with saga():
        await book("a")
    return "done"


def test_what_ends_well_is_not_undone() -> None:
    life = finish(Life(ends_well))
    assert (undos(life), life.seen[-1].outcome) == ([], '"done"')


# -- scopes -----------------------------------------------------------------------------------------------------


@workflow
async def second_choice() -> str:
    await book("a")
    try:
        async with saga():
            await book("b")
            await refused("c")
    except StepError:
        await book("d")
    return "second choice"


def test_an_inner_saga_undoes_its_own_steps_before_the_code_outside_goes_on() -> None:
    life = finish(Life(second_choice))
    assert [[call[2:3] for call in turn] for turn in undos(life)] == [["c"], ["b"]]
    assert life.seen[-1].outcome == '"second choice"'


@workflow
async def inner_then_outer() -> None:
    await book("a")
    async with saga():
        await book("b")
        async with saga():
            await book("c")
        await book("d")
    raise ValueError("no")


def test_what_an_inner_saga_finished_belongs_to_the_one_around_it() -> None:
    life = finish(Life(inner_then_outer))
    assert [call[2:3] for turn in undos(life) for call in turn] == ["d", "c", "b", "a"]


@workflow
async def leaves_a_task_behind() -> None:
    async def later() -> None:
        await look("x")
        await book("b")

    try:
        async with saga():
            await book("a")
            task = asyncio.create_task(later())
            await asyncio.sleep(1)
            raise ValueError("no")
    except ValueError:
        await task
    raise KeyError("late")


def test_what_a_task_does_after_its_saga_has_ended_belongs_to_the_one_around_it() -> None:
    life = Life(leaves_a_task_behind)
    life.finish_step("book")
    life.fire()
    assert undos(life) == [['["a",["ticket a"]]']]
    life.finish_step("look", ".1:1")
    finish(life)
    assert undos(life)[1:] == [['["b",["ticket b"]]']]


@workflow
async def too_slow() -> str:
    try:
        async with asyncio.timeout(5), saga():
            await book("a")
            await asyncio.sleep(60)
    except TimeoutError:
        return "too slow"
    return "never"


def test_a_timeout_around_a_saga_is_heard_when_all_is_undone() -> None:
    life = Life(too_slow)
    life.finish_step("book")
    life.fire()
    assert (undos(life), life.seen[-1].finished) == ([['["a",["ticket a"]]']], False)
    assert finish(life).seen[-1].outcome == '"too slow"'


def test_a_cancel_while_the_workflow_is_undone_stops_nothing() -> None:
    life = Life(one_after_another)
    while not undos(life):
        life.turn(life.answer(next(iter(life.loop.open.values()))))
    life.cancel()
    finish(life)
    assert [call[2:3] for turn in undos(life) for call in turn] == ["c", "b", "a"]
    assert life.seen[-1].outcome == "ValueError: no"


def test_a_cancel_while_an_inner_saga_is_undone_is_heard_when_it_is_and_the_rest_is_undone_too() -> None:
    life = Life(second_choice)
    while not undos(life):
        life.turn(life.answer(next(iter(life.loop.open.values()))))
    life.cancel()
    life.cancel()
    finish(life)
    assert [call[2:3] for turn in undos(life) for call in turn] == ["c", "b", "a"]
    assert life.seen[-1].outcome == "cancelled"


def test_sagas_live_and_are_replayed_in_any_order() -> None:
    assert lived(second_choice) == {'"second choice"'}
    assert lived(inner_then_outer) == {"ValueError: no"}
    assert lived(too_slow, seeds=5) <= {'"too slow"'}
    assert "cancelled" in cancelled_anywhere(second_choice)
    assert "cancelled" in cancelled_anywhere(inner_then_outer)
    assert cancelled_anywhere(fails_beside) <= {"cancelled", *lived(fails_beside)}


def test_an_evicted_process_undoes_nothing() -> None:
    life = Life(inner_then_outer)
    life.finish_step("book")
    life.loop.evict()
    assert not life.loop.open
    assert not life.loop.take_outputs()[0]


def test_a_thousand_steps_are_undone_within_a_moment() -> None:
    @workflow
    async def many() -> None:
        await asyncio.gather(*(book(str(n)) for n in range(1000)))
        for n in range(200):
            await book(f"s{n}")
        raise ValueError("no")

    life = Life(many)
    while not life.loop.finished:
        life.turn(*[life.answer(ask) for ask in life.loop.open.values()])
    assert [len(turn) for turn in undos(life)] == [1] * 200 + [1000]


# -- outside, and twice ----------------------------------------------------------------------------------------


async def test_outside_of_a_workflow_a_saga_does_nothing() -> None:
    with pytest.raises(ValueError, match="no"):
        async with saga():
            raise ValueError("no")


@workflow
async def enters_twice() -> None:
    scope = saga()
    for _ in range(2):
        async with scope:
            await book("a")


def test_a_saga_is_entered_once() -> None:
    assert "Write `async with saga():` again" in str(finish(Life(enters_twice)).seen[-1].outcome)
