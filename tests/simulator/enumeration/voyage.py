"""A voyage: a saga that runs back, with a step and its undo in the queue of another worker."""

from __future__ import annotations

import asyncio

from perdure import Permanent, ProcessFailed, Retry, Status, step, workflow
from perdure.authoring.registry import Registry
from perdure.engine import Engine
from tests.simulator.enumeration.plot import Ending, Plot, deed

CABINS = "cabins"


@step
async def return_ticket(ship: str, result: str | None) -> None:
    deed("returned the ticket", result)


@step(undo=return_ticket)
async def buy_ticket(ship: str) -> str:
    return str(deed("bought a ticket", f"ticket for {ship}"))


@step(queue=CABINS)
async def free_cabin(ship: str, result: str | None) -> None:
    deed("freed the cabin", result)


@step(queue=CABINS, undo=free_cabin)
async def book_cabin(ship: str) -> str:
    await asyncio.sleep(0.6)  # longer than it takes to find out that a worker is dead, and to replay
    return str(deed("booked a cabin", f"cabin on {ship}"))


@step(retry=Retry.NONE)
async def go_aboard(ship: str) -> None:
    deed("went to the quay")
    raise Permanent(f"{ship} has sailed")


@workflow
async def voyage(ship: str) -> None:
    await buy_ticket(ship)
    await book_cabin(ship)
    await go_aboard(ship)


async def traveller(engine: Engine) -> object:
    handle = await engine.start(voyage.options(key="Argo"), "Argo")
    try:
        return await handle.result()
    except ProcessFailed as failed:
        return [failed.type, failed.undone, failed.owed]


def _ashore() -> Registry:
    hosted = Registry(voyage)
    hosted.serve_only([])
    return hosted


def _aboard() -> Registry:
    hosted = Registry()
    hosted.serve_only([CABINS])
    return hosted


VOYAGE = Plot(
    name="voyage",
    client=traveller,
    answer=["StepError", ("book_cabin:1", "buy_ticket:1"), ()],
    workers=(_ashore, _aboard),
    endings=[
        Ending("@cabins", Status.COMPLETED, "cabin on Argo", steps=("book_cabin",)),
        Ending("@cabins", Status.COMPLETED, steps=("free_cabin",)),
        Ending("voyage", Status.FAILED, steps=("buy_ticket", "book_cabin", "free_cabin", "return_ticket")),
    ],
    deeds={
        "bought a ticket": 1,
        "booked a cabin": 1,
        "went to the quay": 1,
        "freed the cabin": 1,
        "returned the ticket": 1,
    },
    seconds=10,
)
