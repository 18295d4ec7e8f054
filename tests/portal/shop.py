"""A shop for the tests of the portal: an order that waits to be paid, and code that calls the portal where it may."""

from __future__ import annotations

import asyncio
import sys
import threading

from perdure import BlockingEngine, Retry, StepError, receive, step, workflow

PORTALS: list[BlockingEngine] = []
"""The engine that the steps and workflows below call."""


@step
async def charge(order: str) -> str:
    """Give a receipt."""
    return f"receipt {order}"


@step
async def wait_for_ever() -> None:
    """Be under way for as long as the test wants."""
    await asyncio.Event().wait()


DOOR = threading.Event()
"""Lets go what hangs."""


@step(retry=Retry.NONE, timeout=0.05)
async def look_up() -> None:
    """Have a call that hangs in a thread of the event loop."""
    await asyncio.to_thread(DOOR.wait)


TASKS: list[asyncio.Task[None]] = []
"""What steps have left behind."""


async def stay() -> None:
    """Be cancelled in vain."""
    while not DOOR.is_set():
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            pass


@step
async def leave_a_task() -> None:
    """Leave a task that does not end when it is told to."""
    TASKS.append(asyncio.create_task(stay()))


@step
def submit(order: str) -> str:
    """Start another process, from the thread of a step that is not async."""
    return PORTALS[-1].start(order_paid.options(key=order), order).result(timeout=20)


async def leave() -> None:
    """Want to end the program."""
    sys.exit(1)


@step(retry=Retry.NONE)
async def leaving_in_a_task() -> None:
    """Have a task that wants to end the program."""
    await asyncio.gather(leave())


@workflow
async def left() -> str:
    """Have a step whose task wants to end the program."""
    try:
        await leaving_in_a_task()
    except StepError as error:
        return str(error)
    return "nothing"


@workflow
async def order_paid(order: str) -> str:
    """Be paid already."""
    return await charge(order)


@workflow
async def order(order: str) -> str:
    """Wait to be paid."""
    receipt = await charge(order)
    return f"{receipt} by {await receive('paid', str, timeout=3600)}"


@workflow
async def refused() -> None:
    """Fail."""
    raise ValueError("the card is blocked")


@workflow
async def hanging() -> str:
    """Have a step whose call hangs."""
    try:
        await look_up()
    except StepError:
        return "given up"
    return "found"


@workflow
async def untidy() -> None:
    """Have a step that leaves a task behind."""
    await leave_a_task()


@workflow
async def lasting() -> None:
    """Have a step that does not end."""
    await wait_for_ever()


@workflow
async def submitting(order: str) -> str:
    """Have a step that calls the portal."""
    return await submit(order)


@workflow
async def blocking() -> None:
    """Call the portal in the workflow itself, which must not be."""
    PORTALS[-1].count()


@workflow
async def namesake(workflow: str, engine: str, holder: str, verb: str, function: str) -> str:
    """Have parameters with the names that the engine's own code uses."""
    return workflow + engine + holder + verb + function
