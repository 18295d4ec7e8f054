"""A newsroom: a reporter publishes line by line, and readers come early, late, and again after they were cut off.

Run it with ``python -m examples.newsroom``. It needs nothing but a folder for its database.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

from perdure import Engine, Search, publish, receive, set_attributes, step, workflow
from perdure.client.handle import Handle


@step
async def look(minute: int) -> str:
    """See what happens in that minute of the match."""
    return {12: "a goal", 40: "rain", 88: "a dog on the pitch"}.get(minute, "nothing")


@workflow
async def match(teams: str) -> str:
    """Report on the minutes that the desk asks for, until it asks for no more."""
    goals = 0
    set_attributes(teams=teams, live=True)
    while (minute := await receive("minute", int)) > 0:
        seen = await look(minute)
        goals += seen == "a goal"
        publish("line", f"minute {minute}: {seen}")
        publish("goals", goals)
    set_attributes(live=None, goals=goals)
    return f"{teams}: {goals} to nothing"


async def early(handle: Handle[str]) -> list[str]:
    """A reader who is there from the first line to the last."""
    return [line async for line in handle.values("line", str)]


async def cut_off(handle: Handle[str]) -> list[str]:
    """A reader whose telephone goes off after one line, and who goes on behind it."""
    stream = handle.values("line", str)
    read = [await anext(stream)]
    await stream.aclose()
    return read + [line async for line in handle.values("line", str, after=stream.number, run=stream.run)]


async def main(url: str) -> None:
    """One match, three readers, and a list of what is live."""
    async with Engine(url, work=True, workflows=[match]) as engine:
        # The first minute comes with the start: both are stored in one transaction.
        handle = await engine.start(match.options(key="gulls-owls", signal=("minute", 12)), "Gulls and Owls")
        readers = asyncio.gather(early(handle), cut_off(handle))
        print("goals by now:", await handle.value("goals", int, wait=10))
        live = await engine.list(Search(attributes=(("live", "true"),)))
        print("live:", *(view.attributes["teams"] for view in live))
        for minute in (40, 88, 0):
            await handle.signal("minute", minute)
        print(await handle.result(10))
        first, second = await readers
        print("early and cut off have read the same:", first == second)
        for line in first:
            print(f"  {line}")
        print("late has read the same:", await early(handle) == first)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/news.db"))
