"""Payments that fail in several ways, and wait in several."""

from __future__ import annotations

from perdure import Permanent, Retry, receive, step, workflow


class CardRefused(Permanent):
    """The bank does not take the card."""


@step(retry=Retry.NONE)
async def charge(order: str, how: str) -> int:
    if how == "refused":
        raise CardRefused(f"card {hash(order)} of order '{order}' was refused")
    if how == "down":
        raise ConnectionError(f"bank: no answer after {len(order)}.5 s")
    return len(order)


@workflow
async def payment(order: str, how: str = "well") -> int:
    if how == "odd":
        raise ValueError(f"order {order!r} is odd")
    if how == "waits":
        await receive("approved")
    return await charge(order, how)


@workflow
async def shipment(order: str) -> None:
    raise ValueError(f"order {order!r} is odd")


@step(retry=Retry.NONE, queue="ledger")
async def book(order: str) -> None:
    raise ValueError(f"no account for {order!r}")


@workflow
async def booking(order: str) -> None:
    await book(order)
