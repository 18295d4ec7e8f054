"""Parents and children on the edges: cancelled between commits, read first, taken over in the middle, retried."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Any

import pytest

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import process_id, receive, tell, workflow
from perdure.engine import Engine
from perdure.errors import ProcessCancelled, ProcessFailed, StepError
from perdure.kernel.policy import Retry
from perdure.kernel.soundness import unsound
from perdure.runtime import outbox
from perdure.runtime.pace import Pace
from perdure.store.base import Search
from perdure.testing.faults import FaultyStore, Outage
from tests.runtime.conftest import LIMIT, Open, until, until_row

PACE = Pace(lease_seconds=1.5, beat_seconds=0.1)
done: list[Any] = []
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()
    gates.clear()


@step(retry=Retry.NONE)
async def gated(name: str) -> str:
    done.append(name)
    await gates[name].wait()
    return name


@step(retry=Retry.NONE)
async def fails_once(name: str) -> str:
    done.append(name)
    if done.count(name) == 1:
        raise RuntimeError("once")
    return name


@workflow
async def kid(name: str) -> str:
    return await gated(name)


@workflow
async def failing_kid(name: str) -> str:
    raise ValueError(name)


class Hold:
    """Holds back the commits of one engine from the ``first`` on, until it is lifted; ``met`` counts those held."""

    def __init__(self, store: FaultyStore, first: int = 1) -> None:
        self.first = first
        self.calls = self.met = 0
        self.lifted = asyncio.Event()
        store.before = self._visit

    async def _visit(self, name: str, argument: Any) -> None:
        if name == "commit":
            self.calls += 1
            if self.calls >= self.first:
                self.met += 1
                await self.lifted.wait()


async def crash(engine: Engine, store: FaultyStore) -> None:
    """Let an engine's worker be as good as dead: it takes nothing, drops all, and is known to have ended."""
    assert engine.worker is not None
    await engine.worker.intake.loop.stop()
    for activation in list(engine.worker.scheduler.hand.values()):
        engine.worker.scheduler.drop(activation)
    await store.store.retire(engine.worker.incarnation.id, None, died=False)


async def sound(engine: Engine) -> None:
    """Check every row by the laws."""
    now = await engine.store.now()
    for row in await engine.store.search(Search(limit=1000)):
        events = await engine.store.history(row.id, row.run, limit=row.events or 1)
        assert unsound(row, events, await engine.store.messages([(row.id, 0)]), now) == []


async def statuses(engine: Engine, kind: str) -> Counter[str]:
    return Counter(str(one.status) for one in await engine.list(Search(kind=kind, limit=1000)))


@workflow
async def changes_its_mind() -> str:
    child = asyncio.ensure_future(kid.child("kid"))
    child.cancel()
    child.cancel()
    try:
        await child
    except asyncio.CancelledError:
        return "never mind"
    return "got it"


async def test_a_child_cancelled_in_the_turn_that_asks_for_it_is_never_started(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[changes_its_mind, kid])
    assert await (await engine.start(changes_its_mind)).result(LIMIT) == "never mind"
    assert await statuses(engine, "kid") == {}


@workflow
async def cancels_twice() -> str:
    child = asyncio.ensure_future(kid.child("kid"))
    await gated("go")
    child.cancel()
    child.cancel()
    await asyncio.wait([child])
    return "cancelled" if child.cancelled() else "not"


async def test_a_child_cancelled_twice_is_asked_to_end_once(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[cancels_twice, kid])
    handle = await engine.start(cancels_twice)
    await until(lambda: set(done) == {"kid", "go"})
    gates["go"].set()
    assert await handle.result(LIMIT) == "cancelled"
    [child] = await engine.list(Search(kind="kid"))
    assert (await engine.row(child.id)).inbox == 1
    await sound(engine)


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
    hand = first.worker.scheduler.hand[handle.id_bytes]
    await until(lambda: hand.loop.stopping)
    gates["kid"].set()
    [child] = await other.list(Search(kind="kid"))
    assert await other.result(child.id, timeout=LIMIT) == "kid"
    message, *_ = await store.store.messages([(handle.id_bytes, 0)])
    first.worker.scheduler.heard(hand, [message])
    await until(lambda: not hand.loop.stopping)
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
    hand = first.worker.scheduler.hand[handle.id_bytes]
    await until(lambda: hand.loop.stopping)
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
    first, store = await opened(work=True, workflows=[leaves_in_its_first_turn], pace=PACE)
    Outage("commit").upon(store).away = True
    handle = await first.start(leaves_in_its_first_turn)
    await crash(first, store)
    second, _ = await opened(work=True, workflows=[leaves_in_its_first_turn, kid], pace=PACE)
    assert await second.result(handle.id, timeout=LIMIT) == "gone"
    [child] = await second.list(Search(kind="kid"))
    assert await second.result(child.id, timeout=LIMIT) == "free"
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
    first, store = await opened(work=True, workflows=[fans_out], pace=PACE)
    hold = Hold(store, 3)
    handle = await first.start(fans_out, 7)
    await until(lambda: hold.met)
    await crash(first, store)
    second, _ = await opened(work=True, workflows=[fans_out, kid], pace=PACE)
    assert await second.result(handle.id, timeout=LIMIT) == 7
    hold.lifted.set()
    assert await statuses(second, "kid") == {"completed": 7}
    assert sorted(done) == [f"kid{n}" for n in range(7)]
    await sound(second)


@workflow
async def hears(n: int) -> list[int]:
    return [await receive("number", int) for _ in range(n)]


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
    await other.signal(handle.id, "late", 1)
    hold.lifted.set()
    assert await handle.result(LIMIT) == "parted"
    assert await listener.result(LIMIT) == [1]
    types = Counter(event.type.name for event in await first.history(handle.id))
    assert (types["CHILD_STARTED"], types["SIGNAL_SENT"], types["MESSAGE_RECEIVED"]) == (1, 1, 1)
    [child] = await other.list(Search(kind="kid"))
    assert await other.result(child.id, timeout=LIMIT) == "free"
    await sound(first)


@workflow
async def gathers_with_errors() -> list[str]:
    found = await asyncio.gather(kid.child("good"), failing_kid.child("bad"), return_exceptions=True)
    return [one if isinstance(one, str) else type(one).__name__ for one in found]


async def test_a_failing_child_is_one_of_the_answers_if_the_code_says_so(opened: Open) -> None:
    gates["good"].set()
    engine, _ = await opened(work=True, workflows=[gathers_with_errors, kid, failing_kid])
    assert await (await engine.start(gathers_with_errors)).result(LIMIT) == ["good", "ProcessFailed"]


@workflow
async def groups() -> str:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(kid.child("slow"))
            group.create_task(failing_kid.child("bad"))
    except ExceptionGroup as errors:
        return ", ".join(type(one).__name__ for one in errors.exceptions)
    return "never"


async def test_a_group_waits_for_the_end_of_the_siblings_of_a_failed_child(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[groups, kid, failing_kid])
    assert await (await engine.start(groups)).result(LIMIT) == "ProcessFailed"
    assert await statuses(engine, "kid") == {"cancelled": 1}, "it had ended before its parent went on"
    await sound(engine)


@workflow
async def has_no_time() -> str:
    try:
        async with asyncio.timeout(0.05):
            await kid.child("slow")
    except TimeoutError:
        return "too slow"
    return "never"


async def test_a_child_that_takes_too_long_is_asked_to_end_before_its_parent_goes_on(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[has_no_time, kid])
    assert await (await engine.start(has_no_time)).result(LIMIT) == "too slow"
    assert await statuses(engine, "kid") == {"cancelled": 1}


@workflow
async def shares() -> list[str]:
    child = asyncio.ensure_future(kid.child("shared"))

    async def wait() -> str:
        return await child

    return list(await asyncio.gather(wait(), asyncio.create_task(wait()), child))


async def test_a_child_awaited_in_several_places_is_one_child(opened: Open) -> None:
    gates["shared"].set()
    engine, _ = await opened(work=True, workflows=[shares, kid])
    assert await (await engine.start(shares)).result(LIMIT) == ["shared"] * 3
    assert await statuses(engine, "kid") == {"completed": 1}


@workflow
async def chains() -> str:
    return await kid.child(kid.child(gated("one")))  # type: ignore[arg-type]


async def test_a_child_may_be_given_the_promise_of_a_step_or_of_another_child(opened: Open) -> None:
    gates["one"].set()
    engine, _ = await opened(work=True, workflows=[chains, kid])
    assert await (await engine.start(chains)).result(LIMIT) == "one"
    assert await statuses(engine, "kid") == {"completed": 2}


@workflow
async def tells_itself() -> list[int]:
    tell(process_id(), "number", 1)
    first = await receive("number", int)
    tell(process_id(), "number", 2)
    return [first, await receive("number", int)]


async def test_a_process_may_tell_itself_something(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[tells_itself])
    assert await (await engine.start(tells_itself)).result(LIMIT) == [1, 2]


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
        await engine.result(child.id, timeout=LIMIT)
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
    assert await second.result(handle.id, timeout=LIMIT) == 2
    assert await statuses(other, "kid") == {"completed": 2}
    await sound(second)


@step(queue="slow", total=0.05)
async def never_served() -> str:
    return "served"


@workflow
async def asks_in_vain() -> str:
    try:
        return await never_served()
    except StepError as error:
        return f"{error.step}: {error.type}"


async def test_ipf49_a_task_over_its_total_time_fails_in_its_parent_whether_served_or_not(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[asks_in_vain], queues=[])
    assert await (await engine.start(asks_in_vain)).result(LIMIT) == "never_served: DeadlineExceeded"


@workflow
async def dies_of_a_cancel() -> str:
    return await kid.child("kid")


async def test_a_child_cancelled_by_a_person_ends_the_wait_of_its_parent(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[dies_of_a_cancel, kid])
    handle = await engine.start(dies_of_a_cancel)
    await until(lambda: "kid" in done)
    [child] = await engine.list(Search(kind="kid"))
    await engine.cancel(child.id, why="test")
    with pytest.raises((ProcessFailed, ProcessCancelled)):
        await handle.result(LIMIT)
