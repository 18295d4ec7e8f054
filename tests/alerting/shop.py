"""A shop whose orders fail, are broken, or wait, as a test wants it."""

from __future__ import annotations

from perdure import Retry, receive, step, workflow

unwell: set[str] = set()


class BankDown(Exception):
    """The bank does not answer."""


@step(name="alerting/pay", retry=Retry.NONE)
async def pay(order: str) -> str:
    if unwell:
        raise BankDown(f"no answer for {order}")
    return f"{order} is paid"


@workflow(name="paying")
async def paying(order: str) -> str:
    """It fails while the bank is down."""
    return await pay(order)


@step(name="alerting/ship", retry=Retry(attempts=1, then=["break"]))
async def ship(order: str) -> str:
    if unwell:
        raise BankDown(f"no answer for {order}")
    return f"{order} is shipped"


@workflow(name="shipping")
async def shipping(order: str) -> str:
    """It is broken while the bank is down."""
    return await ship(order)


@workflow(name="waiting")
async def waiting() -> str:
    """It waits to be told something."""
    return str(await receive("go", str))


@step(name="alerting/print", queue="printer")
async def print_label(order: str) -> str:
    return order


@workflow(name="labelling")
async def labelling(order: str) -> str:
    """It waits for a step in a queue."""
    return await print_label(order)
