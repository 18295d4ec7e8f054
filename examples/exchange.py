"""A bureau of exchange that answers what it is asked: two customers at once, and one who asks again later.

Run it with ``python -m examples.exchange``. It needs nothing but a folder for its database.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from dataclasses import dataclass

from perdure import Call, Engine, receive, step, workflow
from perdure.errors import CallRefused, CallUnanswered


@dataclass
class Quote:
    """What a customer wants changed."""

    currency: str
    cents: int


@dataclass
class Offer:
    """What he gets for it, and the number of the offer."""

    cents: int
    number: int


@step
async def rate(currency: str) -> float:
    """Look up what a euro is worth."""
    print(f"  the rate of {currency} is looked up")
    return {"GBP": 0.8, "JPY": 150.0}[currency]


@workflow
async def exchange() -> int:
    """Make offers until the doors are closed."""
    offers = 0
    while (call := await receive("quote", Call[Quote])).value.cents:
        if call.value.currency not in ("GBP", "JPY"):
            call.answer(ValueError(f"we have no {call.value.currency}"))
            continue
        offers += 1
        call.answer(Offer(round(call.value.cents * await rate(call.value.currency)), offers))
    return offers


async def main(url: str) -> None:
    """Ask, ask again, ask for what there is not, and ask too late."""
    async with Engine(url, work=True, workflows=[exchange]) as engine:
        handle = await engine.start(exchange.options(key="main-street"))
        wanted = Quote("GBP", 1000)
        ann, bob = await asyncio.gather(
            handle.call("quote", wanted, Offer, key="ann", timeout=10),
            handle.call("quote", wanted, Offer, key="ann", timeout=10),
        )
        print("both got", ann, "and it is the same:", ann == bob)

    async with Engine(url, work=True, workflows=[exchange]) as engine:  # another worker, later
        handle = await engine.handle(exchange, "main-street")
        print("asked again:", await handle.call("quote", wanted, Offer, key="ann", timeout=10))
        try:
            await handle.call("quote", Quote("XYZ", 5), timeout=10)
        except CallRefused as refused:
            print(refused)
        try:
            await handle.call("quote", Quote("GBP", 0), timeout=10)
        except CallUnanswered as closed:
            print(closed)
        print("offers made:", await handle.result(10))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/exchange.db"))
