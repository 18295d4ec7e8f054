"""A travel agency: journeys that fail, or are cancelled, are taken back whole, also when the railway does not answer.

Run it with ``python -m examples.travel``. It needs nothing but a folder for its database.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

from perdure import (
    Engine,
    Permanent,
    Retry,
    StepError,
    attempt,
    receive,
    saga,
    set_state,
    step,
    workflow,
)
from perdure.client.handle import Handle
from perdure.errors import ProcessBroken, ProcessError

QUICK = Retry(attempts=2, first=0.01)


class Agency:
    """What is booked, by the idempotency key of the step that booked it; ``answers`` says whether it can be reached."""

    def __init__(self) -> None:
        self.booked: dict[str, str] = {}
        self.answers = True


agency = Agency()


@step(retry=QUICK)
async def give_back(what: str) -> None:
    """Take back a booking by the key under which it was made; if there is none, all is well."""
    if not agency.answers:
        raise ConnectionError("the agency does not answer")
    agency.booked.pop(attempt().undoes or "", None)


@step(undo=give_back, retry=QUICK)
async def book(what: str) -> str:
    """Book something, once, however often it is asked for."""
    if "sold out" in what:
        raise Permanent(what)
    agency.booked[attempt().idempotency_key] = what
    return f"ticket for the {what}"


@workflow
async def journey(traveller: str, train: str, hotel: str) -> str:
    """Book the way there and back side by side, then a room or a tent, then wait until the traveller is home."""
    await asyncio.gather(book(f"{train} for {traveller}"), book(f"train back for {traveller}"))
    try:
        async with saga():
            await book(f"insurance of a room for {traveller}")
            await book(f"{hotel} for {traveller}")
    except StepError:
        await book(f"tent for {traveller}")
    set_state("on the way")
    return await receive("home", str)


async def told(handle: Handle[str]) -> str:
    """What became of a journey, in a line."""
    try:
        return f"{await handle.result(60)}"
    except ProcessError as error:
        undone = f", {len(error.undone)} bookings given back" if error.undone else ""
        return f"{(await handle.status()).status}{undone}"


async def sell(url: str) -> None:
    """Sell five journeys, and tell what became of each and what is booked at the end."""
    async with Engine(url, work=True, workflows=[journey]) as engine:
        wishes = {
            "Ann": ("night train", "grand hotel"),
            "Bob": ("sold out train", "grand hotel"),
            "Cleo": ("night train", "sold out hotel"),
            "Dan": ("night train", "grand hotel"),
            "Eve": ("night train", "grand hotel"),
        }
        handles = {who: await engine.start(journey.options(key=who), who, *wish) for who, wish in wishes.items()}
        print(f"Bob:  {await told(handles['Bob'])}")
        for who in ("Ann", "Cleo", "Dan", "Eve"):
            while (await handles[who].status()).state != "on the way":  # noqa: ASYNC110 (a state wakes nobody)
                await asyncio.sleep(0.01)
        for who in ("Ann", "Cleo"):
            await handles[who].signal("home", "had a good time")
            print(f"{who + ':':<6}{await told(handles[who])}")
        await handles["Dan"].cancel(who="Dan", why="he has broken his leg")
        print(f"Dan:  {await told(handles['Dan'])}")
        await lose_and_mend(handles["Eve"])
        print(f"booked at the end: {', '.join(sorted(agency.booked.values()))}")


async def lose_and_mend(handle: Handle[str]) -> None:
    """Cancel a journey while the agency cannot be reached: the process is broken until somebody has mended that."""
    agency.answers = False
    await handle.cancel(who="Eve")
    try:
        await handle.result(60)
    except ProcessBroken as error:
        print(f"Eve:  {error.type}, {len(error.owed)} bookings not given back yet")
    agency.answers = True
    await handle.retry(who="clerk", why="the agency answers again")
    print(f"Eve:  {await told(handle)}")


def main() -> None:
    """Sell, on the database of the command line or on one for this time only."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(sell(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/perdure.db"))


if __name__ == "__main__":
    main()
