"""Payments that fail while the bank is down, and some that always fail."""

from __future__ import annotations

import threading
from collections import Counter

from perdure import Retry, step, workflow

down = threading.Event()
charged: Counter[str] = Counter()
never: set[str] = set()


@step(retry=Retry.NONE)
async def charge(order: str) -> str:
    charged[order] += 1
    if down.is_set() or order in never:
        raise ConnectionError(f"the bank does not answer for {order}")
    return order


@workflow
async def payment(order: str) -> str:
    return await charge(order)
