"""Messages that a process has not heard yet: what they hold up, and what must not be forgotten or begun meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.client.handle import Handle
from perdure.clock import Computer
from perdure.errors import ProcessCancelled, ProcessFailed
from perdure.kernel.commit import Start
from perdure.kernel.event import EventType
from perdure.kernel.process import Process
from perdure.kernel.retry import Retry
from perdure.testing.faults import Gate
from tests.runtime.conftest import LIMIT, Open, until, until_row

done: list[str] = []
gates: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()


@step(retry=Retry.NONE)
async def note(what: str) -> str:
    done.append(what)
    return what


@step(retry=Retry.NONE, timeout=600)
async def waiting(name: str) -> str:
    done.append(name)
    await gates[name].wait()
    return name


@workflow
async def cancellable() -> str:
    await waiting("first")
    await note("second")
    return "never"


async def at_the_commit_after_the_first(opened: Open) -> tuple[Gate, Handle[Any]]:
    """A process whose first step is done, and whose worker cannot commit that until the gate is opened."""
    gates["first"] = asyncio.Event()
    gates["first"].set()
    engine, store = await opened(work=True, workflows=[cancellable])
    gate = store.before = Gate("commit")
    handle = await engine.start(cancellable)
    await asyncio.wait_for(gate.reached.wait(), LIMIT)
    return gate, handle


async def cancelled_before_the_second(opened: Open, handle: Handle[Any]) -> None:
    """Somebody else asks the process to cancel, while its worker does not hear."""
    teller, _ = await opened()
    await teller.process(handle.id_bytes).cancel(who="anna")
    gates["first"].set()


async def ends_after_the_first(handle: Handle[Any]) -> None:
    with pytest.raises(ProcessCancelled):
        await handle.result(LIMIT)
    assert done == ["first"]


async def test_rule_18_an_unseen_cancel_opens_the_next_turn_before_outputs_are_released(opened: Open) -> None:
    gate, handle = await at_the_commit_after_the_first(opened)
    await cancelled_before_the_second(opened, handle)
    gate.open.set()
    await ends_after_the_first(handle)


async def test_rule_18_a_read_that_began_before_it_was_told_releases_no_outputs(opened: Open) -> None:
    gates["first"] = asyncio.Event()
    engine, store = await opened(work=True, workflows=[cancellable])
    handle = await engine.start(cancellable)
    await until(lambda: done == ["first"])
    gate = store.after = Gate("messages", lambda wants: handle.id_bytes in dict(wants))
    assert engine.worker is not None
    engine.worker.inbox.look(handle.id_bytes)
    await asyncio.wait_for(gate.reached.wait(), LIMIT)
    await cancelled_before_the_second(opened, handle)
    await until(lambda: engine.worker.scheduler.instances[handle.id_bytes].inbox.unheard)  # type: ignore[union-attr]
    gate.open.set()
    await ends_after_the_first(handle)


@workflow
async def two_at_once() -> str:
    async def letters() -> None:
        await waiting("other")
        await waiting("last")
        await receive("letter")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(letters())
        await waiting("first")
        await note("second")
    return "never"


async def test_rule_18_a_read_that_was_under_way_when_it_was_told_of_another_message_releases_no_outputs(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn waits for a letter while a commit is under way, whose answer then tells of a cancel."""
    monkeypatch.setattr(limits, "MAILBOX_BYTES", 0)  # the letter is left in the store
    gates.update(first=asyncio.Event(), other=asyncio.Event(), last=asyncio.Event())
    engine, store = await opened(work=True, workflows=[two_at_once])
    handle = await engine.start(two_at_once)
    await until(lambda: sorted(done) == ["first", "other"])
    await handle.signal("letter")
    assert engine.worker is not None
    inbox = engine.worker.scheduler.instances[handle.id_bytes].inbox
    await until(lambda: inbox.heard == 1)
    gates["other"].set()
    await until_row(engine, handle.id, lambda row: row.seen == 1)
    await until(lambda: "last" in done)
    commit = store.before = Gate("commit")
    gates["first"].set()
    await asyncio.wait_for(commit.reached.wait(), LIMIT)
    read = store.after = Gate("messages", lambda wants: handle.id_bytes in dict(wants))
    gates["last"].set()
    await asyncio.wait_for(read.reached.wait(), LIMIT)
    await cancelled_before_the_second(opened, handle)
    commit.open.set()
    await until(lambda: inbox.unheard == 2)
    read.open.set()
    with pytest.raises(ProcessCancelled):
        await handle.result(LIMIT)
    assert sorted(done) == ["first", "last", "other"]


async def test_rule_18_a_part_of_its_messages_releases_no_outputs(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In front of the cancel lie more letters than one read brings."""
    gate, handle = await at_the_commit_after_the_first(opened)
    monkeypatch.setattr(limits, "HEARD_BYTES", 4_096)
    sender, _ = await opened()
    for _ in range(9):
        await sender.process(handle.id_bytes).signal("letter", "x" * 1_000)
    await cancelled_before_the_second(opened, handle)
    gate.open.set()
    await ends_after_the_first(handle)
    assert (await handle.history())[-1].type is EventType.CANCELLED


@workflow
async def ends_at_once() -> str:
    return "done"


async def test_rule_13_an_end_that_must_read_first_forgets_the_deaths_all_the_same(opened: Open) -> None:
    client, other = await opened()
    _, store = await opened(work=True, workflows=[ends_at_once])
    gate = store.before = Gate("commit")
    row = Process(Computer().new_id(), "ends_at_once", None, b"[]", code=ends_at_once.version, deaths=1)
    await other.start([Start(row)])
    await asyncio.wait_for(gate.reached.wait(), LIMIT)
    await client.process(row.id).signal("late", 1)
    gate.open.set()
    assert await client.process(row.id).result(timeout=LIMIT) == "done"
    types = [event.type.name for event in await client.process(row.id).history()]
    assert types == ["COMPLETED"]  # nobody received what it read first: it stays in the inbox
    assert (await client.row(row.id)).deaths == 0


async def test_a_process_over_its_deadline_with_an_unheard_message_is_not_claimed_again_and_again(opened: Open) -> None:
    client, other = await opened()
    row = Process(
        Computer().new_id(), "ends_at_once", None, b"[]", code=ends_at_once.version, deadline=await other.now() + 1
    )
    await other.start([Start(row)])
    await client.process(row.id).signal("late", 1)
    engine, _ = await opened(work=True, workflows=[ends_at_once])
    with pytest.raises(ProcessFailed, match="deadline"):
        await client.process(row.id).result(timeout=LIMIT)
    assert engine.metrics()["claims"] <= 2
