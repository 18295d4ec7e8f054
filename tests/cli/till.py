"""A till: the workflows that the tests of the command line start."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from perdure import Call, Retry, attempt, publish, receive, set_state, step, workflow


@dataclass
class Item:
    """Something to sell."""

    name: str
    cents: int


@step
async def note(words: str) -> str:
    """Give back what was said."""
    return words


@step(retry=Retry.NONE)
async def refuse(words: str) -> None:
    """Fail for good."""
    raise ValueError(words)


@step(retry=Retry(attempts=5, first=60.0, cap=60.0))
async def falter() -> None:
    """Fail, to be tried again in a minute."""
    raise ConnectionError("the line is dead")


@step
async def hold(folder: str) -> str:
    """Say that it has begun, then wait until a file lets it go."""
    place = Path(folder)
    (place / f"begun-{os.getpid()}").touch()
    while not (place / "go").exists():
        await asyncio.sleep(0.01)
    return "let go"


@step(timeout=90)
async def copy() -> None:
    """Report once, then go on for as long as the test wants."""
    attempt().heartbeat({"copied": 7})
    await asyncio.Event().wait()


@workflow
async def sale(order: str, count: int = 1, item: Item | None = None, day: date | None = None) -> str:
    """Sell something."""
    return await note(f"{order!r} {count} {item} {day}")


@workflow
async def approval(order: str) -> str:
    """Wait for somebody to say yes."""
    set_state({"stage": "waiting"})
    return await receive("yes", str, timeout=3600)


@workflow
async def noted_approval(order: str) -> str:
    """Wait for somebody to say yes, with a first step in the history."""
    return await note(order) + await receive("yes", str, timeout=3600)


@workflow
async def refusal(words: str) -> None:
    """Fail."""
    await refuse(words)


@workflow
async def faltering() -> None:
    """Be tried again in a minute."""
    await falter()


@workflow
async def holding(folder: str) -> str:
    """Have a step that takes as long as the test wants."""
    return await hold(folder)


@workflow
async def copying() -> None:
    """Have a step that reports how far it has come."""
    await copy()


@step(queue="counter")
async def stamp(paper: str) -> str:
    """Stamp a paper, in the queue of the counter."""
    return f"{paper} stamped by {os.getpid()}"


@workflow
async def stamping(paper: str) -> str:
    """Have a paper stamped by whoever serves the counter."""
    return await stamp(paper)


@workflow
async def counting(prices: list[int]) -> int:
    """Publish what has come together, price after price, then once more for each that is told."""
    total = 0
    for price in prices:
        total += price
        publish("total", total)
    publish("note", {"open": True})
    while (more := await receive("price")) is not None:
        total += more
        publish("total", total)
    return total


@workflow
async def counter() -> int:
    """Tell whoever asks what things cost, until somebody asks for nothing."""
    asked = 0
    while (call := await receive("price", Call[str])).value:
        asked += 1
        call.answer(ValueError("not for sale") if call.value == "Riga" else {"cents": len(call.value), "asked": asked})
    return asked
