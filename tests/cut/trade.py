"""The work that goes on while connections are cut: small trades with steps, a signal and a child each, counted."""

from __future__ import annotations

import asyncio
from collections import Counter

from perdure import receive, step, workflow
from perdure.authoring.step import attempt
from perdure.kernel.retry import Retry

EFFECTS: Counter[tuple[str, str]] = Counter()
"""How often each (effect, idempotency key) has happened in this OS process."""


@step(retry=Retry.NONE)
async def move(what: str, n: int) -> int:
    """One effect, which is counted under its key."""
    EFFECTS[f"{what} {n}", attempt().idempotency_key] += 1
    return n


@workflow
async def parcel(n: int) -> int:
    """A child of one step."""
    return await move("parcel", n)


@workflow
async def trade(n: int) -> int:
    """Two steps at once, a signal, a child, a last step: four effects, and five times ``n`` as the result."""
    both = await asyncio.gather(move("pay", n), move("book", n))
    paid = await receive("paid", int)
    return sum(both) + paid + await parcel(n) + await move("close", n)


HOSTED = [trade, parcel]
EFFECTS_EACH = 4
