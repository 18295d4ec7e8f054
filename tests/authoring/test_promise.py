"""A promise: a step passed un-awaited to another step, which is asked for only when the promise is resolved."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.errors import StepError
from tests.authoring.life import Life, lived


@step
async def fetch(number: int) -> int:
    return number


@step
def fail(why: str) -> int:
    raise ValueError(why)


@step
async def add(left: int, *, right: int = 0) -> int:
    return left + right


@step
async def shout(text: str) -> str:
    return text.upper()


A: Any = fetch
FAIL: Any = fail


@workflow
async def adding() -> int:
    known: Any = A(5)
    await known
    total = add(A(1), right=A(2))
    return await add(await total, right=known)


def test_a_step_is_asked_for_only_when_every_promise_among_its_arguments_is_resolved() -> None:
    life = Life(adding)
    life.finish_step("fetch")
    assert life.seen[-1].open == [("fetch", "2"), ("fetch", "3")]
    assert life.finish_step("fetch", "3").open == [("fetch", "2")]
    assert life.finish_step("fetch", "2").asked == [("add", "1", b'{"":[1],"right":2}')]
    life.finish_step("add")
    assert life.finish_step("add", "2").outcome == "8"
    assert lived(adding) == {"8"}


@workflow
async def failing_promises() -> list[str]:
    told = []
    for promise in (add(FAIL("no")), add(A(1), right=FAIL("again"))):
        try:
            await promise
        except StepError as error:
            told.append(f"{error.step} {error.type}")
    return told


def test_a_failed_promise_fails_the_step_that_takes_it_with_the_same_error() -> None:
    assert lived(failing_promises) == {'["fail ValueError","fail ValueError"]'}


@workflow
async def cancelled_promises() -> list[str]:
    promise: Any = A(1)
    kept: Any = A(2)
    taker: Any = add(promise)
    other: Any = add(kept)
    promise.cancel()
    other.cancel()
    results = await asyncio.gather(taker, other, return_exceptions=True)
    already: Any = add(promise)
    results += await asyncio.gather(already, kept, return_exceptions=True)
    return [type(result).__name__ for result in results]


def test_a_cancelled_promise_cancels_the_step_that_takes_it_but_not_the_other_way_round() -> None:
    life = Life(cancelled_promises)
    assert life.seen[0].open == [("fetch", "2")]
    assert life.finish_step("fetch", "2").outcome == '["CancelledError","CancelledError","CancelledError","int"]'


@workflow
async def unfit_promise() -> str:
    promise: Any = A(7)
    try:
        return await shout(promise)
    except ValueError as error:
        return type(error).__name__


def test_a_promised_value_that_does_not_fit_fails_the_step_in_the_workflow() -> None:
    assert Life(unfit_promise).finish_step("fetch").outcome == '"PayloadError"'


@step
async def total(numbers: list[int], names: dict[str, int]) -> int:
    return sum(numbers) + sum(names.values())


@workflow
async def collecting() -> int:
    numbers: Any = [A(1), 2, A(3)]
    asked = total(numbers, {"four": A(4)})
    numbers.clear()  # what is asked for is what stood there then
    return await asked


def test_a_step_that_takes_a_collection_of_promises_waits_for_all_of_them() -> None:
    life = Life(collecting)
    assert life.seen[0].open == [("fetch", "1"), ("fetch", "2"), ("fetch", "3")]
    life.finish_step("fetch", "3")
    life.finish_step("fetch", "1")
    assert life.finish_step("fetch", "2").asked == [("total", "1", b'[[1,2,3],{"four":4}]')]
    assert lived(collecting) == {"10"}


@workflow
async def circular() -> str:
    wheel: list[Any] = [A(1)]
    wheel.append(wheel)
    try:
        return str(await total(wheel, {}))
    except ValueError as error:
        return type(error).__name__


def test_promises_in_a_circle_are_refused_as_any_circle_is() -> None:
    assert Life(circular).finish_step("fetch").outcome == '"PayloadError"'


async def fetch_twice(number: int) -> Any:
    await A(number)
    return A(number + 1)  # handed on as it is, for whoever is waiting to await


@workflow
async def handing_on() -> int:
    promise = await fetch_twice(1)
    return await add(promise, right=await promise)


def test_a_promise_may_be_handed_on_to_whoever_waits_for_it() -> None:
    assert lived(handing_on) == {"4"}


@workflow
async def after_another() -> list[str]:
    first: Any = A(1)
    other: Any = shout("no wait")

    async def then() -> str:
        await first  # an edge without a value
        return await shout("after")

    seen = [str(first.done())]
    return seen + list(await asyncio.gather(then(), other))


def test_a_step_waits_for_another_only_where_the_code_awaits_it() -> None:
    life = Life(after_another)
    assert life.seen[0].open == [("fetch", "1"), ("shout", "1")]
    assert life.finish_step("fetch").asked == [("shout", ".1:1", b'["after"]')]
    assert lived(after_another) == {'["False","AFTER","NO WAIT"]'}
