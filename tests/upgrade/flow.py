"""The workflows of the released database: what stands here is never changed, for the rows of that release fit it.

It uses nothing but what that release had: its own code has made the rows with it.
"""

from __future__ import annotations

import asyncio
import os

from perdure import Retry, continue_as_new, publish, receive, saga, step, workflow

BLOCKED = "PERDURE_UPGRADE_BLOCKS"
"""Where it is set, the step ``upgrade/slow`` is begun and never ends: so is it found by the next release."""

done: list[str] = []


@step(name="upgrade/deed", retry=Retry.NONE)
async def deed(what: str) -> str:
    done.append(what)
    return what


@step(name="upgrade/slow", timeout=3600)
async def slow(what: str) -> str:
    if BLOCKED in os.environ:
        await asyncio.Event().wait()
    done.append(what)
    return what


@step(name="upgrade/queued", queue="upgrade")
async def queued(what: str) -> str:
    done.append(what)
    return what


@step(name="upgrade/give back", retry=Retry.NONE)
async def give_back(what: str, result: str | None) -> None:
    done.append(f"back {what}")


@step(name="upgrade/book", retry=Retry.NONE, undo=give_back)
async def book(what: str) -> str:
    done.append(what)
    return what


@workflow(name="upgrade/sleeper")
async def sleeper() -> list[str]:
    first = await deed("before the night")
    await asyncio.sleep(2.0)
    return [first, await deed("after it")]


@workflow(name="upgrade/listener")
async def listener() -> list[str]:
    """Names come while it waits for another signal: the release recorded each of them when it came."""
    await receive("go")
    return [await receive("name", str) for _ in range(3)]


@workflow(name="upgrade/worker")
async def stepping() -> list[str]:
    return [await deed("first"), await slow("second"), await deed("third")]


@workflow(name="upgrade/renewed")
async def renewed(left: int, heard: list[str]) -> list[str]:
    """Names wait over its runs: the release wrote them anew at the beginning of each."""
    await receive("go")
    heard = [*heard, await receive("name", str)]
    if left:
        continue_as_new(left - 1, heard)
    return heard


@workflow(name="upgrade/plain")
async def plain(what: str) -> str:
    publish("what", what)
    return await deed(what)


@workflow(name="upgrade/task")
async def task(what: str) -> str:
    return await queued(what)


@workflow(name="upgrade/parent")
async def parent() -> list[str]:
    return await listener.child()


@workflow(name="upgrade/trip")
async def trip() -> None:
    async with saga():
        await book("flight")
        await receive("go")
        await book("hotel")
        raise ValueError("no room")


WORKFLOWS = [sleeper, listener, stepping, renewed, plain, task, parent, trip]
