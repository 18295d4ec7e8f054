"""An order that a person has to approve. Web applications start it and ask after it; workers run it.

PERDURE_URL=sqlite:///shop.db perdure worker examples.web.orders
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure import receive, set_state, step, workflow


@dataclass
class Approval:
    """What somebody decided."""

    by: str
    granted: bool


@step
async def charge(number: str, cents: int) -> str:
    """Charge the card."""
    return f"receipt {number}: {cents / 100:.2f}"


@workflow(name="web.order")
async def order(number: str, cents: int) -> str:
    """An order from the click to the receipt; a large one waits for a person in between."""
    if cents > 10_000:
        set_state("waits for an approval")
        approval = await receive("approval", Approval, timeout=7 * 24 * 3600)
        if not approval.granted:
            return f"refused by {approval.by}"
    return await charge(number, cents)
