"""Orders at rest: they wait for a signal, for a child, or for a queued step."""

from __future__ import annotations

from perdure import Retry, receive, step, workflow


@step(retry=Retry.NONE)
async def charge(order: str) -> str:
    return order


@step(queue="parcels", retry=Retry.NONE)
async def pack(order: str) -> str:
    return order


@workflow
async def order(number: str) -> str:
    receipt = await charge(number)
    await receive("go")
    return receipt


@workflow
async def delivery(number: str) -> str:
    await receive("go")
    return number


@workflow
async def sale(number: str) -> str:
    return await delivery.child(number)


@workflow
async def dispatch(number: str) -> str:
    return await pack(number)
