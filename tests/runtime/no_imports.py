"""A worker that runs processes of every kind and says what is imported meanwhile; run as an OS process of its own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from types import ModuleType

from perdure import Engine, ProcessFailed, Retry, attempt, publish, receive, saga, set_state, step, workflow

imported: list[str] = []


class Watch:
    """Stands before all finders of modules and finds none."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """Take note of what is looked for."""
        imported.append(name)


@step(retry=Retry(attempts=2, first=0.01))
async def falter(number: int) -> int:
    if attempt().number == 1:
        raise ConnectionError("once")
    return number


@step
def in_thread(number: int) -> int:
    return number


@step(transaction=True)
def transacted(number: int) -> int:
    return number


@step(transaction=True)
async def transacted_async(number: int) -> int:
    return number


@step(queue="bank")
async def queued(number: int) -> int:
    return number


@step
async def take_back(number: int, result: int | None) -> None: ...


@step(undo=take_back)
async def undoable(number: int) -> int:
    return number


@workflow
async def child(number: int) -> int:
    return await queued(number)


@workflow
async def everything(number: int, sqlite: bool) -> int:
    number = await in_thread(await falter(number))
    number = await child.child(await (transacted if sqlite else transacted_async)(number))
    publish("seen", number)
    set_state({"number": number})
    await asyncio.sleep(0.01)
    async with asyncio.timeout(20):
        await receive("go", str)
    try:
        async with saga():
            await undoable(number)
            raise ValueError("undo it")
    except ValueError:
        return number


@workflow
async def fails() -> None:
    raise RuntimeError("of the code")


async def main(url: str) -> None:
    """Run one of each."""
    async with Engine(url, work=True, workflows=[everything, child, fails], queues=["bank"]) as engine:
        sys.meta_path.insert(0, Watch())  # type: ignore[arg-type]
        handle = await engine.start(everything, 3, url.startswith("sqlite"))
        await handle.signal("go", "on")
        assert await handle.result(30) == 3
        try:
            await (await engine.start(fails)).result(30)
        except ProcessFailed:
            pass
        del sys.meta_path[0]
    print("imported", *imported)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
