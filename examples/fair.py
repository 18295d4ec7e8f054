"""A fair: an organiser sets up stalls, each a process of its own, and takes all back when the weather turns.

What a stall has cost is paid back by the office, whose workers serve a queue. Run it with ``python -m examples.fair``.
It needs nothing but a folder for its database.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

from perdure import Engine, Permanent, Retry, attempt, step, workflow
from perdure.errors import ProcessFailed

rent: dict[str, int] = {}
"""What stands in the books, by the idempotency key of the payment."""
stalls: set[str] = set()


@step(queue="office", retry=Retry(attempts=3, first=0.01))
async def pay_back(cents: int) -> None:
    """Take back a payment by the key under which it was made; the office does it when it has time."""
    rent.pop(attempt().undoes or "", None)


@step(undo=pay_back)
async def pay(cents: int) -> str:
    """Pay the rent of a place, once, however often it is asked for."""
    rent[attempt().idempotency_key] = cents
    return f"{cents} cents paid"


@step
async def build(what: str) -> None:
    """Put up a stall; one that stands already stays."""
    stalls.add(what)


@step
async def take_down(what: str) -> None:
    """Take a stall down; if there is none, all is well."""
    stalls.discard(what)


@workflow
async def stall(what: str) -> str:
    """A stall on its own: its process ends when it stands."""
    await build(what)
    return f"{what} stands"


@step(retry=Retry.NONE)
async def forecast(rain: bool) -> str:
    """Look at the sky."""
    if rain:
        raise Permanent("it will rain")
    return "sunshine"


@workflow
async def fair(rain: bool) -> str:
    """Pay and set up side by side, then look at the sky: whatever stands by then is taken back if it will rain."""
    set_up = stall.child.options(undo=take_down)
    await asyncio.gather(pay(900), set_up("candy"), set_up("carousel"))
    return await forecast(rain)


async def hold_two(url: str) -> None:
    """One fair in the rain, one in the sun; the organiser and the office are two workers."""
    async with Engine(url, work=True, queues=[]) as organiser, Engine(url, work=True, workflows=[], queues=["office"]):
        try:
            await (await organiser.start(fair.options(key="May"), True)).result(60)
        except ProcessFailed as error:
            print(f"May:  failed; taken back: {', '.join(sorted(error.undone))}")
        print(f"     {len(stalls)} stalls, {sum(rent.values())} cents")
        print(f"June: {await (await organiser.start(fair.options(key='June'), False)).result(60)}")
        print(f"     {len(stalls)} stalls, {sum(rent.values())} cents")


def main() -> None:
    """Hold them on the database of the command line, or on one for this time only."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(hold_two(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/perdure.db"))


if __name__ == "__main__":
    main()
