"""A purchase: start with key and first signal, a step that is retried, a timer, a second signal; one worker."""

from __future__ import annotations

import asyncio

from perdure import Retry, Status, receive, step, workflow
from perdure.authoring.registry import Registry
from perdure.engine import Engine
from tests.simulator.enumeration.plot import Ending, Plot, deed, tries
from tests.simulator.enumeration.point import KILLS

ANSWER = ["A-17", "paid 1299", "sent to Kyiv"]


@step(retry=Retry(attempts=9, first=0.1))
async def take_payment(cents: int) -> str:
    if tries("payment") == 1:
        raise ConnectionError("the bank does not answer yet")
    return str(deed("took the payment", f"paid {cents}"))


@step
async def send_parcel(address: str) -> str:
    return str(deed("sent the parcel", f"sent to {address}"))


@workflow
async def purchase(order: str) -> list[str]:
    paid = await take_payment(await receive("cents", int))
    await asyncio.sleep(0.2)
    sent = await send_parcel(await receive("address", str))
    return [order, paid, sent]


async def buyer(engine: Engine) -> object:
    handle = await engine.start(purchase.options(key="A-17", signal=("cents", 1299, "cents/A-17")), "A-17")
    await handle.signal("address", "Kyiv", key="address/A-17")
    return await handle.result()


PURCHASE = Plot(
    name="purchase",
    client=buyer,
    answer=ANSWER,
    workers=(lambda: Registry(purchase),),
    endings=[
        Ending("purchase", Status.COMPLETED, ANSWER, steps=("take_payment", "send_parcel")),
    ],
    deeds={"took the payment": 1, "sent the parcel": 1},
    seconds=10,
    pairs=KILLS,
)
