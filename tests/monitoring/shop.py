"""What is measured and traced: an order with steps here and in a queue, a child, and an account that is called."""

from __future__ import annotations

import asyncio
from typing import Any

from opentelemetry import trace

from perdure import Retry, context, machine, receive, step, workflow

calls: list[str] = []
held = asyncio.Event()


@step
async def pack(article: str) -> str:
    """Succeeds."""
    calls.append("pack")
    return article


@step(retry=Retry(attempts=2, first=0.01))
async def falter(article: str) -> str:
    """Fails at its first attempt."""
    calls.append("falter")
    if calls.count("falter") == 1:
        raise ConnectionError("the line is dead")
    return article


@step(retry=Retry.NONE, timeout=0.05)
async def hang() -> None:
    """Runs over its deadline."""
    await asyncio.Event().wait()


@step(queue="bank")
async def pay(cents: int) -> int:
    """A queued step."""
    return cents


@step(queue="bank")
async def count(coins: int) -> int:
    """A queued step that waits."""
    calls.append("count")
    await held.wait()
    return coins


@step
async def ask(article: str) -> str:
    """Makes a span of its own, as an instrumented HTTP client does, and waits if it is told to."""
    calls.append("ask")
    with trace.get_tracer("shop").start_as_current_span("GET /articles"):
        if article == "wait":
            await held.wait()
    return article


@step
def weigh() -> dict[str, Any]:
    """An ordinary function, in a thread: says which span is current there."""
    here = trace.get_current_span().get_span_context()
    return {"trace": here.trace_id.to_bytes(16, "big").hex(), "span": here.span_id.to_bytes(8, "big").hex()}


@workflow
async def gift(article: str) -> str:
    """A child."""
    return await pack(article)


@workflow
async def order(article: str) -> int:
    """Steps, a queued step, a child."""
    await pack(article)
    await falter(article)
    await gift.child(article)
    return await pay(1299)


@workflow
async def waits(article: str) -> str:
    """A step, a signal, another step."""
    await pack(article)
    await receive("go", str)
    return await pack(article)


@workflow
async def asks(article: str) -> str:
    """Two steps; the second may wait."""
    await pack(article)
    return await ask(article)


@workflow
async def counts(coins: int) -> int:
    """A queued step that waits."""
    return await count(coins)


@workflow
async def weighs() -> dict[str, Any]:
    """A step in a thread."""
    return await weigh()


@workflow
async def hangs() -> None:
    """Fails: its step runs over its deadline."""
    await hang()


@workflow
async def tells() -> dict[str, Any]:
    """The context with which it was started."""
    return context()


MUCH = {"note": "x" * (64 * 1024 - 60)}
"""Attributes beside which there is room for a small context, and not for a traceparent."""


@workflow
async def gives_much() -> str:
    """A child with such attributes."""
    return await gift.child.options(attributes=MUCH)("cup")


class Account(machine.Machine):
    """A machine with a balance."""

    balance: int = 0

    @machine.init
    def opened(self) -> None:
        """An empty account."""

    @machine.call
    async def deposit(self, cents: int) -> int:
        """Raise the balance."""
        if cents < 0:
            raise machine.Refusal("that is no deposit")
        self.balance += cents
        return self.balance

    @machine.call
    def tells(self) -> dict[str, Any]:
        """The context with which it was called."""
        return context()


WORKFLOWS = [order, gift, waits, asks, counts, hangs, weighs, tells, gives_much, Account.__machine__]
