"""A hot process: very many letters for one process keep no other one waiting until they are all received."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.kernel.retry import Retry
from tests.runtime.conftest import LIMIT, Open, until

heard: list[str] = []
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)


@pytest.fixture(autouse=True)
def _nothing_heard() -> None:
    heard.clear()
    gates.clear()


@step(retry=Retry.NONE)
async def gated(name: str) -> None:
    await gates[name].wait()


@workflow
async def listening(name: str, letters: int) -> int:
    for number in range(letters):
        assert (await receive("letter", str)).startswith(f"{number} ")
        heard.append(name)
    return letters


@workflow
async def listening_at_work(name: str, letters: int) -> None:
    """It stays with its worker while it listens, since a step is under way."""
    work = asyncio.create_task(gated("done"))
    for number in range(letters):
        assert (await receive("letter", str)).startswith(f"{number} ")
        heard.append(name)
    await work


@workflow
async def asked(name: str, calls: int) -> int:
    for _ in range(calls):
        await receive("ask", int)
        heard.append(name)
    return calls


async def sent(handle: Handle[Any], letters: int, text: str = "") -> None:
    for begin in range(0, letters, 100):
        numbers = range(begin, min(begin + 100, letters))
        await asyncio.gather(*(handle.signal("letter", f"{number} {text}") for number in numbers))


def heard_before(name: str, others: list[str]) -> int:
    """How many letters the hot process had received when the last of the others had its own."""
    return heard[: max(heard.index(other) for other in others)].count(name)


async def test_an_inbox_that_is_too_large_for_one_read_lets_others_be_read_between_its_portions(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hot process is read before all others, by its id, and it has sixteen reads full of letters."""
    monkeypatch.setattr(limits, "HEARD_BYTES", 4_000)
    worker, store = await opened(work=True, workflows=[listening_at_work])
    client, _ = await opened()
    hot = client.process((await worker.start(listening_at_work, "hot", 64)).id)
    names = [f"other {n}" for n in range(5)]
    others = [client.process((await worker.start(listening_at_work, name, 1)).id) for name in names]
    reading = asyncio.Event()

    async def held_up(name: str, _: Any) -> None:
        if name == "messages":
            await reading.wait()

    store.before = held_up
    await sent(hot, 64, "x" * 1_000)
    for other in others:
        await sent(other, 1)
    reading.set()
    await until(lambda: len(heard) == 64 + len(others))
    assert heard_before("hot", names) <= 32, "the others were read between the portions of the hot process"
    gates["done"].set()
    await asyncio.gather(*(worker.process(one.id).result(LIMIT) for one in (hot, *others)))


async def called(engine: Engine, handle: Handle[Any], calls: int) -> None:
    for begin in range(0, calls, 100):
        await asyncio.gather(*(engine.process(handle.id).call("ask", n) for n in range(begin, begin + 100)))


async def test_processes_that_are_started_beside_many_calls_to_one_end_while_it_is_still_called(opened: Open) -> None:
    worker, _ = await opened(work=True, workflows=[asked, listening])
    hot = await worker.start(asked, "hot", 1_000)
    calling = asyncio.create_task(called(worker, hot, 1_000))
    waited: list[int] = []
    for n in range(5):
        await until(lambda n=n: len(heard) >= 100 * n)  # type: ignore[misc]
        before = heard.count("hot")
        other = await worker.start(listening, f"other {n}", 1)
        await sent(other, 1)
        assert await other.result(LIMIT) == 1
        waited.append(heard[: heard.index(f"other {n}")].count("hot") - before)
    await calling
    assert await hot.result(LIMIT) == 1_000
    assert max(waited) <= 300, "three portions of the caller: one for the start, the letter and the turn each"
