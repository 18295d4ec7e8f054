"""A bank that does not answer, steps and workflows that ask it, and what tests wait for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from perdure import Breaker, Retry, step, workflow
from perdure.engine import Engine
from perdure.kernel.breaker import Circuit
from perdure.store.base import Search
from tests.runtime.conftest import LIMIT

MANY = 12
HOUR = 3600.0
BANK = Breaker("bank", failures=3, within=HOUR, open_for=HOUR, longest=HOUR)
EAGER = Retry(attempts=9, first=0.0)
calls: Counter[int] = Counter()
trouble: list[BaseException] = []


class Refused(Exception):
    """The bank's answer."""


async def ask(number: int) -> int:
    calls[number] += 1
    if trouble:
        raise trouble[0]
    return number


def in_a_thread(number: int) -> int:
    calls[number] += 1
    if trouble:
        raise trouble[0]
    return number


pay = step(retry=EAGER, breaker=BANK, name="pay", raises=Refused, permanent=ZeroDivisionError)(ask)
pay_in_thread = step(retry=EAGER, breaker=BANK, name="pay_in_thread")(in_a_thread)
pay_quickly = step(
    retry=EAGER, breaker=Breaker("bank", failures=3, open_for=0.05, factor=1), name="pay_quickly", timeout=5
)(ask)
pay_in_time = step(retry=Retry(attempts=9, first=0.0, total=50.0), breaker=BANK, name="pay_in_time")(ask)
pay_in_queue = step(retry=EAGER, breaker=BANK, queue="tills", name="pay_in_queue")(ask)
pay_once = step(
    at_most_once=True, breaker=Breaker("bank", failures=3, open_for=0.05, factor=1), name="pay_once", timeout=5
)(ask)
other = step(name="other")(ask)


@workflow
async def paying(number: int) -> int:
    return await pay(number)


@workflow
async def paying_in_thread(number: int) -> int:
    return await pay_in_thread(number)


@workflow
async def paying_quickly(number: int) -> int:
    return await pay_quickly(number)


@workflow
async def paying_in_time(number: int) -> int:
    return await pay_in_time(number)


@workflow
async def paying_in_queue(number: int) -> int:
    return await pay_in_queue(number)


@workflow
async def paying_once(number: int) -> int:
    return await pay_once(number)


@workflow
async def elsewhere(number: int, name: str) -> int:
    return await pay.options(breaker=Breaker(name, failures=1))(number)


@workflow
async def other_work(number: int) -> int:
    return await other(number)


ALL: list[Any] = [
    paying, paying_in_thread, paying_quickly, paying_in_time, paying_in_queue, paying_once, elsewhere,
    other_work,
]  # fmt: skip


async def circuit_of(engine: Engine) -> Circuit:
    """The row of the breaker, or one of which nothing is known."""
    return next(iter(await engine.store.records(Circuit)), Circuit("bank"))


async def circuit_when(engine: Engine, true: Callable[[Circuit], bool]) -> Circuit:
    """Wait until the row of the breaker is as wanted."""
    async with asyncio.timeout(LIMIT):
        while not true(circuit := await circuit_of(engine)):
            await asyncio.sleep(0.002)
    return circuit


async def all_rest(engine: Engine, count: int) -> None:
    """Wait until no worker holds any of so many processes and tasks."""
    async with asyncio.timeout(LIMIT):
        while True:
            rows = await engine.store.search(Search(limit=count + 1, tasks=True))
            if len(rows) >= count and not any(row.owner for row in rows):
                return
            await asyncio.sleep(0.002)
