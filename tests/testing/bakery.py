"""A bakery: workflows that mostly wait, for tests of the engine whose time skips."""

from __future__ import annotations

import asyncio

from perdure import Call, Retry, attempt, now, publish, receive, step, workflow

HOUR = 3600.0
DAY = 24 * HOUR


@step(retry=Retry(attempts=3, first=HOUR, factor=1.0, cap=HOUR, jitter=0.0))
async def charge(order: str, cents: int) -> str:
    """Take the money; in the tests something else is to run in its place."""
    raise AssertionError("a test has charged a card")


@step
def remind(order: str) -> str:
    """Write to the customer."""
    return f"dear {order}"


@step
async def refund(order: str, cents: int) -> None:
    """Give the money back; in the tests something else is to run in its place."""
    raise AssertionError("a test has given money back")


@step(undo=refund)
async def pay(order: str, cents: int) -> str:
    """A step that can be undone."""
    return f"paid {order}"


@step(hard=True)
def grind(grams: int) -> int:
    """A hard step, which runs in an OS process of its own."""
    return grams


@step(transaction=True)
def book(order: str) -> str:
    """A step with a transaction of its own."""
    return "" if attempt().connection is None else "booked with a connection"


@step(queue="tests.testing.oven")
async def bake(loaf: str) -> str:
    """A step that waits in a queue."""
    return f"real {loaf}"


@workflow
async def delivery(order: str) -> str:
    """Wait three days for the delivery, then remind."""
    try:
        await receive("delivered", timeout=3 * DAY)
    except TimeoutError:
        return await remind(order)
    return "delivered"


@workflow
async def purchase(order: str, cents: int) -> str:
    """Charge, which may take some tries."""
    return await charge(order, cents)


@workflow
async def rest(seconds: float) -> str:
    """Wait, and say on which day it is over."""
    await asyncio.sleep(seconds)
    return now().date().isoformat()


@workflow
async def family(seconds: float) -> list[str]:
    """Two children that wait, and a timer of its own that is over last."""
    first, second = rest.child(seconds), rest.child(2 * seconds)
    await asyncio.sleep(3 * seconds)
    return [await first, await second, now().date().isoformat()]


@workflow
async def forgotten() -> None:
    """Wait for what nobody sends."""
    await receive("never")


@workflow
async def week() -> None:
    """Publish each day."""
    for day in range(7):
        await asyncio.sleep(DAY)
        publish("day", day)


@workflow
async def counter() -> int:
    """Answer one question, a day after it was put."""
    question = await receive("how many", Call[str])
    await asyncio.sleep(DAY)
    question.answer(42)
    return 42


@workflow
async def watch(number: int) -> int:
    """So many steps, one every five minutes."""
    done = 0
    for _ in range(number):
        await asyncio.sleep(300)
        done = await count(done)
    return done


@step
async def count(done: int) -> int:
    """Count on."""
    return done + 1


@workflow
async def kitchen() -> tuple[int, str, str]:
    """One step of each kind."""
    return await grind(500), await book("A-1"), await bake("rye")


@workflow
async def regret(order: str) -> None:
    """Pay, then fail, so that the payment is undone."""
    await pay(order, 5)
    raise ValueError("changed its mind")
