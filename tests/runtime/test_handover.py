"""Old and new workers side by side: what an old one does not understand it leaves to the new one, unbroken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from perdure import limits
from perdure.authoring.fingerprint import fingerprint
from perdure.authoring.step import step
from perdure.authoring.workflow import Workflow, receive, workflow
from perdure.clock import SECOND
from perdure.kernel.process import Process, Status
from perdure.kernel.worker import Backlog, Offer, WorkerRow, unhosted
from perdure.runtime.handover import Handover
from perdure.runtime.options import WorkerOptions
from perdure.store.migrate import steps
from perdure.turns.patches import patched
from tests.input.door import execute
from tests.runtime.conftest import LIMIT, Open, until, until_row
from tests.runtime.test_damaged_rows import damage

done: list[str] = []
hold = [asyncio.Event()]
QUICK = WorkerOptions(beat_seconds=0.05)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    done.clear()
    hold[0] = asyncio.Event()
    monkeypatch.setattr(limits, "HANDOVER_FIRST_SECONDS", 0.01)
    monkeypatch.setattr(limits, "HANDOVER_LONGEST_SECONDS", 0.02)
    yield
    hold[0].set()


@step
async def deed(what: str) -> str:
    done.append(what)
    return what


@step
async def slow(what: str) -> str:
    done.append(f"begun {what}")
    await hold[0].wait()
    return what


@workflow(name="order")
async def old_order() -> list[str]:
    return [await deed("the old way"), await slow("old")]


@workflow(name="order")
async def new_order() -> list[str]:
    if patched("better"):
        return [await deed("the new way"), await slow("new")]
    return [await deed("the old way"), await slow("old")]


async def test_an_old_worker_that_takes_over_a_process_with_a_patch_leaves_it_to_the_new_one(opened: Open) -> None:
    new, _ = await opened(work=True, workflows=[new_order])
    handle = await new.start(new_order)
    await until(lambda: "begun new" in done)
    await new.close(0)
    old, _ = await opened(work=True, workflows=[old_order])
    await until(lambda: old.telemetry.counters["processes_handed_over"] >= 3)
    assert (await old.process(handle.id).status()).status is Status.RUNNING
    hold[0].set()
    await opened(work=True, workflows=[new_order])
    assert await old.process(handle.id).result(timeout=LIMIT) == ["the new way", "new"]
    assert old.telemetry.counters["broken"] == 0
    assert [one for one in done if not one.startswith("begun")] == ["the new way"]


async def test_what_nobody_takes_for_long_is_parked_with_the_reason(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HANDOVER_ALONE_SECONDS", 0.1)
    new, _ = await opened(work=True, workflows=[new_order])
    handle = await new.start(new_order)
    await until(lambda: "begun new" in done)
    await new.close(0)
    old, _ = await opened(work=True, workflows=[old_order])
    row = await until_row(old, handle.id, lambda row: row.status is Status.BROKEN)
    assert b"the history recorded" in row.error
    assert old.telemetry.counters["processes_handed_over"] >= 1


async def newer_schema(url: str, *, oldest: int = 1) -> int:
    """Have the database say that a newer Perdure has migrated it; the answer is the number."""
    name = url.partition(":")[0]
    number = len(steps("sqlite" if name == "sqlite" else "postgres")) + 1
    prefix = "" if name == "sqlite" else "perdure."
    note = f"INSERT INTO perdure.migration (number, name) VALUES ({number}, 'of tomorrow')"  # noqa: S608
    await execute(url, f"PRAGMA user_version = {number}" if name == "sqlite" else note)
    await execute(url, f"UPDATE {prefix}schema_reader SET oldest = {oldest}")  # noqa: S608
    return number


async def older_schema(url: str, number: int) -> None:
    """Take that back: the database is used by other tests too."""
    sqlite = url.startswith("sqlite")
    note = f"DELETE FROM perdure.migration WHERE number = {number}"  # noqa: S608
    await execute(url, f"PRAGMA user_version = {number - 1}" if sqlite else note)
    await execute(url, f"UPDATE {'' if sqlite else 'perdure.'}schema_reader SET oldest = 1")  # noqa: S608


@workflow(name="waits")
async def waits() -> str:
    first = await deed("first")
    return first + await receive("go", str)


async def test_an_event_of_an_unknown_type_beside_a_newer_schema_is_left_to_newer_workers(
    opened: Open, store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine, _ = await opened(work=True, workflows=[waits])
    odd, usual = await engine.start(waits.options(key="odd")), await engine.start(waits.options(key="usual"))
    for handle in (odd, usual):
        await until_row(engine, handle.id, lambda row: row.owner is None and row.awaiting is not None)
    await engine.close()
    assert await damage(store_url, odd.id, "event", "type: 77")
    await make_due(store_url, odd.id)
    number = await newer_schema(store_url)
    try:
        with caplog.at_level(logging.WARNING, "perdure"):
            old, _ = await opened(work=True, workflows=[waits], options=QUICK)
            await until(lambda: old.telemetry.counters["processes_handed_over"] >= 3)
            assert (await old.process(odd.id).status()).status is Status.RUNNING
            await old.process(usual.id).signal("go", "on")
            assert await old.process(usual.id).result(timeout=LIMIT) == "firston"
        said = [one for one in caplog.messages if f"the database is at schema version {number}" in one]
        assert len(said) == 1
        assert [event.type.name for event in await old.process(odd.id).history()] == ["UNKNOWN_77"]
        await damage(store_url, odd.id, "event", "type: 1")  # as if a worker that knows it went on with it
        await old.process(odd.id).signal("go", "on")
        assert await old.process(odd.id).result(timeout=LIMIT) == "firston"
        assert done.count("first") == 2
    finally:
        await older_schema(store_url, number)


async def test_what_a_newer_worker_wrote_before_an_old_one_has_heard_of_it_is_left_to_newer_workers_too(
    opened: Open, store_url: str
) -> None:
    rare = WorkerOptions(lease_seconds=3000, beat_seconds=1000)
    old, _ = await opened(work=True, workflows=[waits], options=rare)
    handle = await old.start(waits)
    await until_row(old, handle.id, lambda row: row.owner is None and row.awaiting is not None)
    number = await newer_schema(store_url)
    try:
        await damage(store_url, handle.id, "event", "type: 77")
        await make_due(store_url, handle.id)
        await until(lambda: old.telemetry.counters["processes_handed_over"] or old.telemetry.counters["broken"])
        assert old.telemetry.counters["broken"] == 0
        assert (await old.process(handle.id).status()).status is Status.RUNNING
    finally:
        await older_schema(store_url, number)


async def make_due(url: str, id: str) -> None:
    """Let a waiting process be due, as its timer would."""
    sqlite = url.startswith("sqlite")
    table, value = ("process", "1") if sqlite else ("perdure.process", "'2020-01-01Z'")
    which = f"x'{id.replace('-', '')}'" if sqlite else f"'{id}'"
    reminder = "0" if sqlite else "false"
    await execute(url, f"UPDATE {table} SET due_at = {value}, reminder = {reminder} WHERE id = {which}")  # noqa: S608


async def test_a_worker_hears_with_its_beat_that_the_schema_is_newer_and_goes_on(
    opened: Open, store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine, _ = await opened(work=True, workflows=[waits], options=QUICK)
    handle = await engine.start(waits)
    with caplog.at_level(logging.WARNING, "perdure"):
        number = await newer_schema(store_url)
        try:
            await until(lambda: any("it goes on with what it knows" in one for one in caplog.messages))
            await engine.process(handle.id).signal("go", "on")
            assert await engine.process(handle.id).result(timeout=LIMIT) == "firston"
        finally:
            await older_schema(store_url, number)
    assert len([one for one in caplog.messages if f"schema version {number}" in one]) == 1


async def test_a_worker_that_may_not_live_beside_the_newer_schema_hands_everything_back_and_says_so(
    opened: Open, store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine, _ = await opened(work=True, workflows=[waits], options=QUICK)
    client, _ = await opened()
    handle = await engine.start(waits)
    await until_row(client, handle.id, lambda row: row.awaiting is not None)
    with caplog.at_level(logging.WARNING, "perdure"):
        number = await newer_schema(store_url, oldest=99)
        try:
            await until(lambda: any("takes nothing more" in one for one in caplog.messages))
            await client.process(handle.id).signal("go", "on")
            assert engine.worker is not None and engine.worker.scheduler.draining
            assert (await client.process(handle.id).status()).status is Status.RUNNING
        finally:
            await older_schema(store_url, number)


async def test_an_old_worker_that_runs_suspects_alone_hears_that_a_newer_one_lives_and_breaks_none_of_its_processes(
    opened: Open, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HANDOVER_ASIDE_SECONDS", 0.01)
    engine, _ = await opened(work=True, workflows=[waits])
    handle = await engine.start(waits)
    await until_row(engine, handle.id, lambda row: row.owner is None and row.awaiting is not None)
    await engine.close()
    await damage(store_url, handle.id, "event", "type: 77")
    await damage(store_url, handle.id, "process", "deaths: 2")
    await make_due(store_url, handle.id)
    number = await newer_schema(store_url)
    try:
        client, _ = await opened()
        newer = Offer(frozenset({("waits", "")}), {}, number).encode()
        await client.store.enlist(WorkerRow(client.machine.new_id(), "newer", hosts=newer), 3_600 * SECOND)
        old, _ = await opened(work=True, workflows=[waits], alone=True)
        counters, worker = old.telemetry.counters, old.worker
        assert worker is not None
        await until(lambda: counters["processes_handed_over"] and worker.context.offers())
        monkeypatch.setattr(limits, "HANDOVER_ALONE_SECONDS", 0.0)
        before = counters["processes_handed_over"]
        await make_due(store_url, handle.id)
        await until(lambda: counters["processes_handed_over"] > before or counters["broken"])
        assert counters["broken"] == 0
    finally:
        await older_schema(store_url, number)


# -- the rules of a handover, by themselves ---------------------------------------------------------------------------


PROCESS = Process(b"1" * 16, "order", None, b"[]", code="1")


def handover(seconds: list[float], mine: Offer, *others: bytes) -> Handover:
    """A handover at a time that the test moves."""
    time = SimpleNamespace(monotonic=lambda: seconds[0])
    scheduler: Any = SimpleNamespace(parts=SimpleNamespace(time=time), events=SimpleNamespace(offers=lambda: others))
    made = Handover(scheduler)
    made.offer = mine
    return made


def test_a_process_is_left_to_others_ever_longer_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HANDOVER_FIRST_SECONDS", 1.0)
    monkeypatch.setattr(limits, "HANDOVER_LONGEST_SECONDS", 30.0)
    now = [0.0]
    one = handover(now, Offer())
    waits = []
    while (wait := one.wait(PROCESS)) is not None:
        waits.append(wait)
        now[0] += wait
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert sum(waits[:-1]) < limits.HANDOVER_ALONE_SECONDS <= sum(waits)
    assert one.wait(PROCESS) == 1.0  # it was retried: a new handover begins


def test_it_is_left_to_others_for_longer_while_one_lives_that_has_other_code_or_a_newer_schema() -> None:
    mine = Offer(frozenset({("order", "1")}), {("order", "1"): "aa"}, 3)
    same = Offer(mine.hosted, mine.codes, 3).encode()
    other = Offer(mine.hosted, {("order", "1"): "bb"}, 3).encode()
    elsewhere = Offer(frozenset({("pay", "1")}), {("pay", "1"): "bb"}, 3).encode()
    newer = Offer(frozenset(), {}, 4).encode()
    former = b'[["order","1"]]'
    for hosts, long in ((same, False), (elsewhere, False), (b"{", False), (other, True), (newer, True), (former, True)):
        now = [0.0]
        one = handover(now, mine, hosts)
        one.wait(PROCESS)
        now[0] = limits.HANDOVER_ALONE_SECONDS + 1
        assert (one.wait(PROCESS) is not None) is long, hosts


def test_who_leaves_a_process_to_others_keeps_away_from_its_kind_so_that_they_have_the_first_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "HANDOVER_FIRST_SECONDS", 1.0)
    monkeypatch.setattr(limits, "HANDOVER_LONGEST_SECONDS", 30.0)
    pair = ("order", "1")
    mine = Offer(frozenset({pair}), {pair: "aa"}, 3)
    newer = Offer(frozenset({pair}), {}, 4).encode()
    elsewhere = Offer(frozenset({("pay", "1")}), {}, 4).encode()
    now = [0.0]
    one, alone = handover(now, mine, newer), handover(now, mine, elsewhere)
    kept_away = []
    for _ in range(6):
        due = one.wait(PROCESS) or 0.0
        alone.wait(PROCESS)
        began = now[0]
        while not one.lets_by(pair):
            now[0] += 0.25
        assert now[0] in (began, began + due)
        while one.lets_by(pair):
            now[0] += 0.25
            assert not alone.lets_by(pair)  # nobody else serves this kind: then others of it must not wait
        kept_away.append(now[0] - began)
    assert kept_away == [3.0, 6.0, 12.0, 16.0, 32.0, 64.0]
    assert not one.lets_any_by and not one.lets_by(("pay", "1"))


def test_an_offer_says_nothing_that_a_former_version_takes_for_a_kind_that_is_waited_for() -> None:
    offer = Offer(frozenset({("order", "1")}), {("order", "1"): "aa"}, 3)
    assert Offer.decode(offer.encode()) == offer
    worker = WorkerRow(b"1" * 16, "w", hosts=offer.encode())
    assert unhosted([Backlog("order", "1", 1)], [worker]) == []


def test_a_fingerprint_is_of_the_code_and_not_of_where_it_stands() -> None:
    def made(text: str) -> Workflow[Any, Any]:
        space: dict[str, Any] = {"workflow": workflow}
        exec(text, space)  # noqa: S102
        found: Workflow[Any, Any] = space["same"]
        return found

    text = "@workflow(name='same')\nasync def same(): return helper()\ndef helper(): return {1, 2, 'x'} > {3}\n"
    first = fingerprint(made(text).function)
    assert fingerprint(made("\n\n" + text).function) == first
    assert fingerprint(made(text.replace("'x'", "'y'")).function) != first
