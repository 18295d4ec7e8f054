"""The inbox reader: a hint that names a process is followed for that one, and in the end for certain."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.client import answers
from perdure.kernel.retry import Retry
from perdure.runtime import inbox_reader
from perdure.testing.faults import Gate, Outage
from perdure.turns.mailbox import Call
from tests.runtime.conftest import LIMIT, Open, until

begun: list[str] = []
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)


@pytest.fixture(autouse=True)
def _nothing_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    begun.clear()
    gates.clear()
    monkeypatch.setattr(limits, "POLL_SECONDS", 3600.0)  # nobody hears of anything by looking now and then


@step(retry=Retry.NONE)
async def gated(name: str) -> None:
    begun.append(name)
    await gates[name].wait()


@workflow
async def at_work(names: list[str]) -> str:
    """It stays with its worker while a step is under way."""
    work = asyncio.gather(*map(gated, names))
    letter = await receive("letter", str)
    begun.append(letter)
    await work
    return letter


@workflow
async def asked() -> None:
    work = asyncio.create_task(gated("work"))
    call = await receive("ask", Call[int])
    begun.append("call")
    await work
    call.answer(call.value + 1)
    await receive("more")


async def test_on_a_hint_that_names_a_process_no_other_one_is_read(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_reader, "TOLD_SECONDS", 0.0)  # no commit is so new that it has told of all messages
    engine, store = await opened(work=True, workflows=[at_work])
    client, _ = await opened()
    handles = [await engine.start(at_work, [f"{n}"]) for n in range(5)]
    await until(lambda: len(begun) == len(handles))
    store.calls.clear()
    for one in (handles[0], handles[3]):
        await client.process(one.id).signal("letter", "a")
    await until(lambda: begun[5:] == ["a", "a"])
    read = {id for name, wants in store.calls if name == "messages" for id, _ in wants}
    assert read == {handles[0].id_bytes, handles[3].id_bytes}


async def test_a_hint_that_comes_between_a_commit_and_its_answer_is_followed_after_the_answer(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[at_work])
    client, _ = await opened()
    handle = await engine.start(at_work, ["one", "two"])
    await until(lambda: len(begun) == 2)
    written = store.after = Gate("commit")
    gates["one"].set()
    await asyncio.wait_for(written.reached.wait(), LIMIT)  # the answer to it knows nothing of the letter
    hinted = asyncio.Event()
    look = engine.worker.inbox.look if engine.worker else None
    assert look is not None and engine.worker is not None

    def heard_of(process: bytes) -> None:
        look(process)
        hinted.set()

    engine.worker.inbox.look = heard_of  # type: ignore[method-assign]
    await client.process(handle.id).signal("letter", "a")
    await asyncio.wait_for(hinted.wait(), LIMIT)
    await until(lambda: not engine.worker.inbox._named)  # type: ignore[union-attr]
    written.open.set()
    await until(lambda: begun[-1] == "a")
    gates["two"].set()
    assert await handle.result(LIMIT) == "a"


@workflow
async def after_work() -> str:
    await gated("first")
    await gated("work")
    return await receive("letter", str)


async def test_of_two_instances_of_a_process_the_reader_reads_for_the_new_one(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, store = await opened(work=True, workflows=[after_work])
    assert engine.worker is not None
    scheduler = engine.worker.scheduler
    handle = await engine.start(after_work)
    await until(lambda: begun == ["first"])
    await handle.signal("letter", "a")
    old = scheduler.instances[handle.id_bytes]
    await until(lambda: old.inbox.heard == 1)
    gates["first"].set()
    await until(lambda: begun == ["first", "work"])  # a commit has marked the letter: whoever comes next looks for it
    outage = Outage("messages").upon(store)
    outage.away = True
    scheduler.await_messages(old)
    await until(lambda: outage.failed > 0)
    await handle.signal("other")
    scheduler.release(old)
    await until(lambda: begun == ["first", "work", "work"])
    gates["work"].set()
    await until(lambda: scheduler.instances[handle.id_bytes].inbox.fetching)
    monkeypatch.setattr(limits, "HEARD_BYTES", 1)  # any answer may have been cut at its last process
    outage.away = False
    assert await handle.result(LIMIT) == "a"


async def test_a_caller_looks_for_the_answer_once_its_own_worker_has_let_the_process_go(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "HELD_POLL_SECONDS", 3600.0)
    monkeypatch.setattr(limits, "POLL_SECONDS", 0.05)
    engine, _ = await opened(work=True, workflows=[asked])
    monkeypatch.setattr(engine.parts.followers, "_heard", lambda notification: None)  # and no hint arrives
    handle = await engine.start(asked)
    await until(lambda: begun == ["work"])
    calling: asyncio.Task[Any] = asyncio.create_task(handle.call("ask", 1, int))
    await until(lambda: begun[1:] == ["call"])
    assert engine.worker is not None
    scheduler = engine.worker.scheduler
    scheduler.drain()
    scheduler.release(scheduler.instances[handle.id_bytes])
    await opened(work=True, workflows=[asked])
    gates["work"].set()
    assert await asyncio.wait_for(calling, LIMIT) == 2
