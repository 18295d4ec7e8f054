"""The life of an order, as a workflow: reserve, charge, pack, then ship and write; or give everything back.

Run it with ``SHOP_URL=sqlite:///shop.db perdure worker examples.shop.orders``.
"""

from __future__ import annotations

import asyncio
import os

from examples.shop.database import OutOfStock, Shop
from examples.shop.generate import CARD_LIMIT_CENTS
from perdure import Permanent, Retry, attempt, step, workflow

BANK_SECONDS = 0.15

_shop: Shop | None = None
_opening = asyncio.Lock()


class Declined(Permanent):
    """The bank said no; asking again would not help."""


async def shop() -> Shop:
    """The shop's database, opened once in each worker."""
    global _shop
    async with _opening:
        if _shop is None:
            _shop = await Shop.at(os.environ["SHOP_URL"])
    return _shop


@step(retry=Retry(attempts=10, first=0.2, never=(OutOfStock,)), timeout=30)
async def reserve(order: str, good: str, quantity: int) -> None:
    """Take the goods off the shelf. The key makes a second attempt harmless."""
    await (await shop()).reserve(attempt().idempotency_key, order, good, quantity)


@step(retry=Retry(attempts=10, first=0.2), timeout=30, raises=Declined)
async def charge(order: str, cents: int) -> str:
    """Charge the card. The bank takes its time before and after, and says no to too much."""
    await asyncio.sleep(BANK_SECONDS)
    if cents > CARD_LIMIT_CENTS:
        raise Declined(f"the card may not be charged with {cents / 100:.2f}")
    await (await shop()).charge(attempt().idempotency_key, order, cents)
    # If we die here the money is taken but nobody knows: another worker asks again, with the same key.
    await asyncio.sleep(BANK_SECONDS)
    return f"receipt {order}"


@step(retry=Retry(attempts=10, first=0.2), timeout=30)
async def release(order: str, good: str, quantity: int) -> None:
    """Put the goods back."""
    await (await shop()).release(attempt().idempotency_key, order, good, quantity)


@step(retry=Retry(attempts=10, first=0.2), timeout=30)
async def ship(order: str) -> None:
    """Hand the parcel to the carrier."""
    await (await shop()).ship(attempt().idempotency_key, order)


@step(retry=Retry(attempts=10, first=0.2), timeout=30)
async def write(order: str, words: str) -> None:
    """Write to the customer."""
    await (await shop()).write(attempt().idempotency_key, order, words)


@workflow(name="shop.order")
async def order(order_id: str, good: str, quantity: int, cents: int, packing_seconds: float) -> str:
    """One order from the click to the doorstep. Any worker may die anywhere in it."""
    await reserve(order_id, good, quantity)
    try:
        receipt = await charge(order_id, cents)
    except Declined as refused:
        await release(order_id, good, quantity)
        await write(order_id, f"we are sorry: {refused}")
        return "declined"
    await asyncio.sleep(packing_seconds)
    await asyncio.gather(ship(order_id), write(order_id, f"thank you! {receipt}"))
    return receipt
