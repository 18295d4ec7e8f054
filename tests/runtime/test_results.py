"""Waiting for a result: what the store said before somebody began to wait is no answer to him."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.client.results import SETTLED
from perdure.client.unserved import Unserved
from perdure.clock import SECOND
from perdure.errors import InvalidKey, ProcessFailed, ProcessNotFound
from perdure.kernel.process import Process, Status
from perdure.kernel.retry import Retry
from perdure.kernel.worker import Offer, WorkerRow
from perdure.testing.faults import Gate
from tests.runtime.conftest import LIMIT, Open, until, until_row

done: list[str] = []
gates: list[asyncio.Event] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()
    gates[:] = [asyncio.Event()]


@step(retry=Retry.NONE)
async def pay() -> str:
    done.append("tried")
    await gates[0].wait()
    if len(done) == 1:
        raise ConnectionError("the bank is closed")
    return "paid"


@workflow
async def paying() -> str:
    return await pay()


def awaited(kind: str, **more: Any) -> Process:
    """The row of a process of which somebody awaits the result."""
    return Process(kind.encode().ljust(16), kind, None, b"[]", **more)


async def test_a_handle_by_the_id_alone_reads_nothing_until_a_verb_asks(opened: Open) -> None:
    gates[0].set()
    done.append("before")
    engine, _ = await opened(work=True, workflows=[paying])
    handle = await engine.start(paying)
    by_id = engine.process(handle.id, str)
    assert (by_id.id_bytes, by_id.kind, by_id.key, by_id.created) == (handle.id_bytes, None, None, False)
    assert await by_id.result(LIMIT) == "paid" and (await by_id.status()).kind == "paying"
    nobody = engine.process(engine.machine.new_id())
    for verb in (nobody.result, nobody.status, nobody.hold, lambda: nobody.signal("go"), lambda: nobody.call("go")):
        with pytest.raises(ProcessNotFound, match=nobody.id):
            await verb()
    with pytest.raises(InvalidKey, match="is not a process id"):
        engine.process("A-17")


async def test_who_waits_for_what_no_live_worker_hosts_is_told_so_once(
    opened: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.limits.POLL_SECONDS", 0.02)
    client, _ = await opened()
    first, second = await client.start(paying), await client.start(paying)
    waiting = [asyncio.create_task(one.result()) for one in (first, second)]
    await until(lambda: caplog.messages)
    (line,) = caplog.messages
    assert (
        "cannot go on now: no live worker hosts workflow 'paying' version 'tests.runtime.test_results:paying'" in line
    )
    assert line.endswith(". Start one: perdure worker MODULE")
    gates[0].set()
    done.append("tried")
    await opened(work=True, workflows=[paying])
    assert await asyncio.gather(*waiting) == ["paid", "paid"]
    assert len(caplog.messages) == 1


async def test_a_worker_that_is_silent_and_one_that_hosts_something_else_serve_nobody(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    _, store = await opened()
    await store.enlist(WorkerRow(b"a" * 16, "living", Offer(frozenset({("living", "")})).encode()), 3600 * SECOND)
    await store.enlist(WorkerRow(b"s" * 16, "silent", Offer(frozenset({("silent", "")})).encode()), 1)
    unserved = Unserved(store)
    await unserved.look([awaited("living"), awaited("ended", status=Status.FAILED)])
    assert caplog.messages == []
    await unserved.look([awaited("silent", code="2"), awaited("@till", code="lower")])
    assert [line.partition("no live worker ")[2] for line in caplog.messages] == [
        "hosts workflow 'silent' version '2'. Start one: perdure worker MODULE",
        "serves queue 'till' with the label 'lower'. Start one: perdure worker MODULE --queues till --labels lower",
    ]


async def test_a_look_that_began_before_a_retry_does_not_answer_who_waits_for_what_comes_of_it(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[paying])
    client, store = await opened()
    handle = await client.start(paying)
    gates[0].set()
    await until_row(engine, handle.id, lambda row: row.status is Status.FAILED)
    gate = store.after = Gate("search", lambda search: search.statuses == SETTLED)
    first = asyncio.create_task(handle.result())
    await asyncio.wait_for(gate.reached.wait(), LIMIT)  # it has seen the failure, and has not told of it yet
    await handle.retry(why="the bank is open")
    second = asyncio.create_task(handle.result(LIMIT))
    await asyncio.sleep(0)
    gate.open.set()
    with pytest.raises(ProcessFailed):
        await first
    assert await second == "paid"


def fails(commits: Sequence[Any]) -> bool:
    return any(commit.after.status is Status.FAILED for commit in commits)


async def test_a_commit_of_before_a_retry_does_not_answer_who_waits_for_what_comes_of_it(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[paying])
    client, _ = await opened()
    gate = store.after = Gate("commit", fails)
    handle = await engine.start(paying)
    await until(lambda: done)
    first = asyncio.create_task(handle.result())
    await asyncio.sleep(0)
    gates[0].set()
    await asyncio.wait_for(gate.reached.wait(), LIMIT)  # the failure is written, and its worker has not heard of it yet
    await client.process(handle.id).retry(why="the bank is open")
    second = asyncio.create_task(handle.result(LIMIT))
    await asyncio.sleep(0)
    gate.open.set()
    assert await second == "paid"
    await asyncio.wait([first])  # he may be told of either end
