"""A bank whose desk answers what it is asked; the workflows that the tests of calls start."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.kernel.retry import Retry
from perdure.turns.mailbox import Call
from perdure.turns.renewal import continue_as_new

ran: list[int] = []
gates: dict[int, asyncio.Event] = {}
failing: set[int] = set()


@dataclass
class Asked:
    """What a desk is asked."""

    cents: int


@dataclass
class Quoted:
    """What it answers."""

    cents: int
    number: int


@step(retry=Retry.NONE)
async def price(cents: int) -> int:
    ran.append(cents)
    if cents in gates:
        await gates[cents].wait()
    if cents in failing:
        failing.discard(cents)
        raise ConnectionError("the line is dead")
    return 2 * cents


@workflow
async def desk() -> int:
    """Answer one after the other, until somebody asks for nothing, who gets no answer."""
    number = 0
    while True:
        call = await receive("quote", Call[Asked])
        if call.value.cents == 0:
            return number
        if call.value.cents < 0:
            call.answer(ValueError("less than nothing"))
            continue
        number += 1
        call.answer(Quoted(await price(call.value.cents), number))


@workflow
async def turned(turns: int) -> None:
    """Leave each call to the next run so many times, then answer it, then begin anew."""
    call = await receive("quote", Call[int])
    if turns > 0:
        continue_as_new(turns - 1)
    call.answer(-call.value)
    continue_as_new(2)


@workflow
async def listener() -> list[int]:
    """Take what is said, by signals and calls alike, and answer nothing."""
    heard: list[int] = []
    while (word := await receive("word", int)) != 0:
        heard.append(word)
    return heard


@workflow
async def crowd() -> int:
    """Answer as many as there are without waiting for anything in between."""
    answered = 0
    while (call := await receive("quote", Call[int])).value >= 0:
        answered += 1
        call.answer("x" * call.value)
    return answered


@workflow
async def two_faced() -> str:
    """Answer twice, which is once too often."""
    call = await receive("quote", Call)
    call.answer(1)
    call.answer(2)
    return "never"


@workflow
async def mute() -> None:
    """Hear a call, then wait for what never comes."""
    call = await receive("quote", Call[int])
    await receive("never")
    call.answer(call.value)


HOSTED = [desk, turned, listener, crowd, two_faced, mute]
