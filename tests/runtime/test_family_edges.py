"""Parents and children between two commits: read first, taken over in the middle, retried, answered too early."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from perdure import limits
from perdure.authoring import task
from perdure.authoring.step import step
from perdure.authoring.workflow import Workflow, receive, tell, workflow
from perdure.errors import ProcessCancelled, ProcessFailed
from perdure.kernel.retry import Retry
from perdure.runtime import outbox
from perdure.runtime.options import WorkerOptions
from perdure.store.base import Search
from perdure.testing.faults import Outage
from perdure.turns.renewal import continue_as_new
from tests.runtime.conftest import LIMIT, Open, until, until_row
from tests.runtime.kin import (
    Hold,
    crash,
    done,
    fails_once,
    gated,
    gates,
    kid,
    sound,
    statuses,
    until_all_have_ended,
    until_statuses,
)

PACE = WorkerOptions(lease_seconds=1.5, beat_seconds=0.1)


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()
    gates.clear()


@workflow
async def stops_beside() -> str:
    child = asyncio.ensure_future(kid.child("kid"))

    async def note() -> None:
        await gated("one")

    noting = asyncio.create_task(note())
    await gated("two")
    child.cancel()
    await asyncio.wait([child, noting])
    return "cancelled" if child.cancelled() else "not"


async def test_a_child_that_answers_before_the_wish_that_it_may_end_is_written_does_not_disturb(opened: Open) -> None:
    first, store = await opened(work=True, workflows=[stops_beside])
    other, _ = await opened(work=True, workflows=[kid])
    handle = await first.start(stops_beside)
    await until(lambda: set(done) == {"one", "two", "kid"})
    hold = Hold(store)
    gates["one"].set()
    await until(lambda: hold.met)
    gates["two"].set()
    assert first.worker is not None
    instance = first.worker.scheduler.instances[handle.id_bytes]
    await until(lambda: instance.loop.stopping)
    gates["kid"].set()
    [child] = await other.list(Search(kind="kid"))
    assert await other.process(child.id).result(timeout=LIMIT) == "kid"
    message, *_ = await store.store.messages([(handle.id_bytes, 0)])
    first.worker.scheduler.heard(instance, [message])
    await until(lambda: not instance.loop.stopping)
    hold.lifted.set()
    assert await handle.result(LIMIT) == "cancelled"
    await sound(first)


@workflow
async def stops_the_last(n: int) -> list[str]:
    children = [asyncio.ensure_future(kid.child(f"kid{one}")) for one in range(n)]
    await gated("go")
    children[-1].cancel()
    found = await asyncio.gather(*children, return_exceptions=True)
    return [one if isinstance(one, str) else type(one).__name__ for one in found]


async def test_a_child_may_be_cancelled_while_it_waits_for_a_later_commit(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OUTBOX_RECORDS", 2)
    for n in range(6):
        gates[f"kid{n}"].set()
    gates["go"].set()
    first, store = await opened(work=True, workflows=[stops_the_last])
    other, _ = await opened(work=True, workflows=[kid])
    hold = Hold(store, 2)
    handle = await first.start(stops_the_last, 6)
    await until(lambda: hold.met)
    assert first.worker is not None
    instance = first.worker.scheduler.instances[handle.id_bytes]
    await until(lambda: instance.loop.stopping)
    hold.lifted.set()
    assert await handle.result(LIMIT) == [*(f"kid{n}" for n in range(5)), "CancelledError"]
    assert (await statuses(other, "kid"))["completed"] >= 5
    await sound(first)


@workflow
async def leaves_in_its_first_turn() -> str:
    kid.child("bound")
    kid.child.options(on_parent_end="abandon")("free")
    return "gone"


async def test_a_first_turn_that_is_also_the_last_starts_only_what_outlives_it_wherever_it_is_taken_up(
    opened: Open,
) -> None:
    gates["free"].set()
    first, store = await opened(work=True, workflows=[leaves_in_its_first_turn], options=PACE)
    Outage("commit").upon(store).away = True
    handle = await first.start(leaves_in_its_first_turn)
    await crash(first, store)
    second, _ = await opened(work=True, workflows=[leaves_in_its_first_turn, kid], options=PACE)
    assert await second.process(handle.id).result(timeout=LIMIT) == "gone"
    [child] = await second.list(Search(kind="kid"))
    assert await second.process(child.id).result(timeout=LIMIT) == "free"
    await sound(second)


@workflow
async def fans_out(n: int) -> int:
    return len(await asyncio.gather(*(kid.child(f"kid{one}") for one in range(n))))


async def test_a_parent_that_dies_between_the_commits_of_its_children_starts_the_rest_and_none_twice(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OUTBOX_RECORDS", 2)
    for n in range(7):
        gates[f"kid{n}"].set()
    first, store = await opened(work=True, workflows=[fans_out], options=PACE)
    hold = Hold(store, 3)
    handle = await first.start(fans_out, 7)
    await until(lambda: hold.met)
    await crash(first, store)
    second, _ = await opened(work=True, workflows=[fans_out, kid], options=PACE)
    assert await second.process(handle.id).result(timeout=LIMIT) == 7
    hold.lifted.set()
    assert await statuses(second, "kid") == {"completed": 7}
    assert sorted(done) == [f"kid{n}" for n in range(7)]
    await sound(second)


@step(queue="drawer", retry=Retry.NONE)
async def counted(name: str) -> str:
    done.append(name)
    return name


@workflow
async def loses_patience(n: int) -> str:
    counting = asyncio.gather(*(counted(f"count{one}") for one in range(n)))
    await receive("enough")
    counting.cancel()
    await receive("end")
    return "gone"


@workflow
async def leaves_its_steps(n: int) -> str:
    left = [counted(f"count{one}") for one in range(n)]
    await receive("enough")
    return "gone" if left else "nothing"


@pytest.mark.parametrize("leaves", [loses_patience, leaves_its_steps])
async def test_a_parent_that_dies_between_the_orders_to_its_queued_steps_cancels_the_rest(
    opened: Open, monkeypatch: pytest.MonkeyPatch, leaves: Workflow[[int], str]
) -> None:
    monkeypatch.setattr(limits, "OUTBOX_RECORDS", 2)
    first, store = await opened(work=True, workflows=[leaves], queues=[], options=PACE)
    handle = await first.start(leaves, 6)
    await until_statuses(first, "@drawer", running=6)
    hold = Hold(store, 2, sending=True)
    await handle.signal("enough")
    await until(lambda: hold.met)
    await crash(first, store)
    second, _ = await opened(work=True, workflows=[leaves], queues=[], options=PACE)
    await second.process(handle.id).signal("end")
    assert await second.process(handle.id).result(timeout=LIMIT) == "gone"
    hold.lifted.set()
    third, _ = await opened(work=True, workflows=[], queues=["drawer"])
    await until_all_have_ended(third, "@drawer")
    assert (await statuses(third, "@drawer"), done) == ({"cancelled": 6}, [])
    await sound(second)


@workflow
async def hears(n: int) -> list[int]:
    return [await receive("number", int) for _ in range(n)]


@workflow
async def tells_and_continues(to: str, run: int = 1) -> str:
    if run == 1:
        for n in range(7):
            tell(to, "number", n)
        continue_as_new(to, 2)
    return "told"


async def test_a_run_that_continues_as_new_and_dies_between_the_commits_of_its_signals_sends_the_rest_once(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OUTBOX_RECORDS", 2)
    other, _ = await opened(work=True, workflows=[hears])
    listener = await other.start(hears, 7)
    first, store = await opened(work=True, workflows=[tells_and_continues], options=PACE)
    hold = Hold(store, 3)
    handle = await first.start(tells_and_continues, listener.id)
    await until(lambda: hold.met)
    await crash(first, store)
    second, _ = await opened(work=True, workflows=[tells_and_continues], options=PACE)
    assert await second.process(handle.id).result(timeout=LIMIT) == "told"
    assert await listener.result(LIMIT) == list(range(7))
    hold.lifted.set()
    await sound(second)


@workflow
async def parts(to: str) -> str:
    await gated("part")
    kid.child("bound")
    kid.child.options(on_parent_end="abandon")("free")
    tell(to, "number", 1)
    return "parted"


async def test_rule_18_an_end_that_must_read_first_sends_out_once_what_it_had_to_send(opened: Open) -> None:
    gates["free"].set()
    first, store = await opened(work=True, workflows=[parts])
    other, _ = await opened(work=True, workflows=[kid, hears])
    listener = await other.start(hears, 1)
    handle = await first.start(parts, listener.id)
    await until(lambda: "part" in done)
    hold = Hold(store)
    gates["part"].set()
    await until(lambda: hold.met)
    await other.process(handle.id).signal("late", 1)
    hold.lifted.set()
    assert await handle.result(LIMIT) == "parted"
    assert await listener.result(LIMIT) == [1]
    types = Counter(event.type.name for event in await first.process(handle.id).history())
    assert (types["CHILD_STARTED"], types["SIGNAL_SENT"]) == (1, 1)
    seen = (await first.row(handle.id)).seen
    assert (seen, types["MESSAGE_RECEIVED"]) == (1, 0), "it was read before the end, and nobody received it"
    [child] = await other.list(Search(kind="kid"))
    assert await other.process(child.id).result(timeout=LIMIT) == "free"
    await sound(first)


@workflow
async def beside(bond: str) -> list[str]:
    child = kid.child.options(on_parent_end=bond)("kid")  # type: ignore[arg-type]
    await gated("go")
    return list(await asyncio.gather(child, fails_once("flaky")))


async def test_rule_21_a_retried_parent_has_a_fresh_child_for_the_one_that_was_asked_to_end(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[beside, kid])
    gates["go"].set()
    handle = await engine.start(beside, "cancel")
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    [child] = await engine.list(Search(kind="kid"))
    with pytest.raises(ProcessCancelled):
        await engine.process(child.id).result(timeout=LIMIT)
    gates["kid"].set()
    await handle.retry(why="again")
    assert await handle.result(LIMIT) == ["kid", "flaky"]
    assert await statuses(engine, "kid") == {"cancelled": 1, "completed": 1}
    await sound(engine)


async def test_rule_21_a_retried_parent_waits_for_the_child_that_goes_its_own_way_and_still_runs(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[beside, kid])
    gates["go"].set()
    handle = await engine.start(beside, "abandon")
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    await until(lambda: "kid" in done)
    await handle.retry(why="again")
    gates["kid"].set()
    assert await handle.result(LIMIT) == ["kid", "flaky"]
    assert await statuses(engine, "kid") == {"completed": 1}
    await sound(engine)


async def test_a_parent_let_go_while_its_child_runs_goes_on_wherever_the_answer_finds_a_worker(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "HOLD", 0)
    first, _ = await opened(work=True, workflows=[fans_out])
    other, _ = await opened(work=True, workflows=[kid])
    handle = await first.start(fans_out, 2)
    await until(lambda: len(done) == 2)
    await until_row(first, handle.id, lambda row: row.owner is None)
    await first.close(0)
    second, _ = await opened(work=True, workflows=[fans_out])
    gates["kid0"].set()
    gates["kid1"].set()
    assert await second.process(handle.id).result(timeout=LIMIT) == 2
    assert await statuses(other, "kid") == {"completed": 2}
    await sound(second)


@step(queue="till")
async def charge_at_the_till(cents: int) -> int:
    return cents


@workflow
async def asks_the_till(cents: int) -> int:
    return await charge_at_the_till(cents)


async def test_a_task_whose_step_its_worker_does_not_know_is_parked_with_advice_and_goes_on_when_it_does(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    till, _ = await opened(work=True, workflows=[], queues=["till"])
    shop, _ = await opened(work=True, workflows=[asks_the_till], queues=[])
    with monkeypatch.context() as ignorant:
        ignorant.setattr(task, "steps_named", lambda name: [])
        handle = await shop.start(asks_the_till, 7)
        async with asyncio.timeout(LIMIT):
            while await statuses(shop, "@till") != {"broken": 1}:
                await asyncio.sleep(0)
    [parked] = await shop.list(Search(kind="@till"))
    assert b"import the module that defines it" in ((await shop.row(parked.id)).error or b"")
    await till.process(parked.id).retry(why="imported")
    assert await handle.result(LIMIT) == 7
    await sound(shop)


async def test_rule_06_children_with_large_inputs_are_started_by_several_commits(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BATCH_BYTES", 30)
    for n in range(5):
        gates[f"kid{n}"].set()
    engine, store = await opened(work=True, workflows=[fans_out, kid])
    handle = await engine.start(fans_out, 5)
    assert await handle.result(LIMIT) == 5
    sizes = [len(commit.starts) for name, commits in store.calls if name == "commit" for commit in commits]
    assert max(sizes) <= 4, "8 bytes are an input"
    assert sum(sizes) == 5
    await sound(engine)
