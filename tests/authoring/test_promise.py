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
