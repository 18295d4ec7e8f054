"""A portion of an operation: a handful of calls for many processes, each fenced by itself, and none is forgotten."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from perdure import Engine, ProcessFailed, Search
from perdure.authoring.operation import machine, plan
from perdure.authoring.operation.plan import CHANGED, OperationPlan, Window
from perdure.client import past_orders, portion, read_ahead
from perdure.errors import StoreUnavailable
from perdure.kernel.event import EventType
from perdure.kernel.names import id_text
from perdure.store.base import Search as Rows
from perdure.testing.faults import FaultyStore, Gate, Outage
from tests.operations import bank
from tests.operations.copies import copy
from tests.runtime.conftest import LIMIT, Open

RETRY = OperationPlan("retry", "kind = payment")


async def failed(opened: Open, many: int) -> tuple[Engine, FaultyStore]:
    """Payments that have failed, as a client without a worker finds them."""
    worker, _ = await opened(work=True, workflows=[bank])
    first = await worker.start(bank.payment, "A-0")
    with pytest.raises(ProcessFailed):
        await first.result(LIMIT)
    await worker.close()
    engine, store = await opened()
    await copy(engine, first.id, many - 1)
    store.calls.clear()
    return engine, store


async def ids_of(engine: Engine) -> list[str]:
    return [view.id for view in await engine.list(Search(kind="payment", limit=1000))]


def called(store: FaultyStore) -> Counter[str]:
    return Counter(name for name, _ in store.calls)


def pages(store: FaultyStore) -> int:
    """How many pages of processes were read, other than those of operations that may go first."""
    return sum(name == "search" and rows.kind != machine.KIND for name, rows in store.calls)


async def retried(engine: Engine) -> int:
    """How many of the commands stand in the histories; each must be the only one of its process."""
    rows = await engine.store.search(Rows(kind="payment", limit=1000))
    for row in rows:
        opened = await engine.store.history(row.id, row.run, types=(EventType.RUN_OPENED,))
        assert (row.run, len(opened)) in ((1, 0), (2, 1))
    return sum(row.run == 2 for row in rows)


async def test_a_portion_is_read_and_written_with_a_handful_of_calls(opened: Open) -> None:
    engine, store = await failed(opened, 48)
    every, window = await ids_of(engine), Window(await engine.store.now())
    store.calls.clear()
    carried = await engine.operations.carry_out(RETRY, "one", window, every)
    assert (carried.done, carried.left_out) == (48, {})
    assert called(store) == {"search": 1, "histories": 1, "commit": called(store)["commit"]}
    assert called(store)["commit"] <= 2, "the first may go alone, the others wait for it"
    assert await retried(engine) == 48


async def test_histories_that_are_too_long_for_one_answer_are_read_one_after_the_other(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_orders, "BATCH_BYTES", 1)
    engine, store = await failed(opened, 5)
    assert (await engine.operations.preview("retry", "kind = payment")).would == 5
    carried = await engine.operations.carry_out(RETRY, "one", Window(await engine.store.now()), await ids_of(engine))
    assert (carried.done, called(store)["histories"]) == (5, 2 * 5)


@pytest.mark.parametrize(("verb", "read"), [("retry", True), ("terminate", True), ("hold", False), ("resume", False)])
async def test_a_history_is_read_only_for_a_command_that_needs_it(opened: Open, verb: str, read: bool) -> None:
    engine, store = await failed(opened, 3)
    await engine.operations.preview(verb, "kind = payment")
    assert called(store)["histories"] == (1 if read else 0)


async def test_a_process_that_goes_on_where_it_was_is_retried_without_its_history(opened: Open) -> None:
    engine, store = await failed(opened, 3)
    held = await engine.start(bank.payment.options(delay=3600), "B-1")
    await held.hold()
    store.calls.clear()
    preview = await engine.operations.preview("retry", "kind = payment and status = held")
    assert (preview.would, called(store)["histories"]) == (1, 0)


async def test_one_that_moves_while_its_portion_is_written_is_left_alone_and_the_others_are_done(opened: Open) -> None:
    engine, store = await failed(opened, 6)
    other, _ = await opened()
    every, window = await ids_of(engine), Window(await engine.store.now())
    gate = Gate("commit")
    store.before = gate
    carrying = asyncio.create_task(engine.operations.carry_out(RETRY, "one", window, every))
    await asyncio.wait_for(gate.reached.wait(), LIMIT)
    await other.process(every[2]).retry(who="bob")
    gate.open.set()
    carried = await carrying
    assert (carried.done, carried.left_out) == (5, {CHANGED: 1})
    assert await retried(engine) == 6, "and the command of bob is the only one that this process has"
    again = await engine.operations.carry_out(RETRY, "one", window, every)
    assert again == carried and await retried(engine) == 6


async def test_a_portion_is_not_read_again_by_the_worker_that_has_selected_it(opened: Open) -> None:
    engine, store = await failed(opened, 5)
    window = Window(await engine.store.now())
    chosen = await engine.operations.select(RETRY, "one", window, None, 9)
    store.calls.clear()
    assert (await engine.operations.carry_out(RETRY, "one", window, chosen.processes)).done == 5
    assert called(store)["search"] == 0
    assert (await engine.operations.carry_out(RETRY, "one", window, chosen.processes)).done == 5
    assert called(store)["search"] == 1, "a portion that is done again is looked at anew"
    assert await retried(engine) == 5


async def test_what_comes_behind_a_portion_is_read_while_it_is_commanded(opened: Open) -> None:
    engine, store = await failed(opened, 6)
    every, window = await ids_of(engine), Window(await engine.store.now())
    first = await engine.operations.select(RETRY, "one", window, None, 3)
    await engine.operations.carry_out(RETRY, "one", window, first.processes)
    await engine.process(every[4]).retry(who="bob")
    store.calls.clear()
    second = await engine.operations.select(RETRY, "one", window, first.before, 3)
    assert (second.processes, pages(store)) == (every[3:], 0)
    carried = await engine.operations.carry_out(RETRY, "one", window, second.processes)
    assert (carried.done, carried.left_out) == (2, {CHANGED: 1})
    assert await retried(engine) == 6, "and the command of bob is the only one that this process has"


@pytest.mark.parametrize("why", ["old", "another operation", "another place", "not read"])
async def test_what_was_read_ahead_serves_no_other_portion_and_not_a_later_time(
    opened: Open, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    engine, store = await failed(opened, 6)
    every, window = await ids_of(engine), Window(await engine.store.now())
    first = await engine.operations.select(RETRY, "one", window, None, 3)
    outage = Outage("search").upon(store)
    outage.away = why == "not read"
    assert (await engine.operations.carry_out(RETRY, "one", window, first.processes)).done == 3
    outage.away = False
    monkeypatch.setattr(read_ahead, "FRESH_SECONDS", 0.0 if why == "old" else 3600.0)
    plan = OperationPlan("retry", "kind = intake") if why == "another operation" else RETRY
    operation = "two" if why == "another operation" else "one"
    before = every[4] if why == "another place" else first.before
    store.calls.clear()
    chosen = await engine.operations.select(plan, operation, window, before, 3)
    assert pages(store) == 1
    assert chosen.processes == {"another operation": [], "another place": every[5:]}.get(why, every[3:])


async def test_a_portion_that_was_cut_off_is_counted_as_it_was_done(opened: Open) -> None:
    engine, store = await failed(opened, 40)
    every, window = await ids_of(engine), Window(await engine.store.now())
    assert (await engine.operations.carry_out(RETRY, "one", window, every[:25])).done == 25
    store.calls.clear()
    carried = await engine.operations.carry_out(RETRY, "one", window, every)
    assert (carried.done, carried.left_out) == (40, {})
    assert called(store)["history"] == 0 and called(store)["histories"] <= 3
    assert await retried(engine) == 40
    assert (await engine.operations.carry_out(RETRY, "another", window, every)).left_out == {CHANGED: 40}


@pytest.mark.parametrize("door", ["histories", "search"])
async def test_a_database_that_is_away_is_no_reason_to_leave_a_process_out(opened: Open, door: str) -> None:
    engine, store = await failed(opened, 3)
    every, window = await ids_of(engine), Window(await engine.store.now())
    outage = Outage(door).upon(store)
    outage.away = True
    with pytest.raises(StoreUnavailable):
        await engine.operations.carry_out(RETRY, "one", window, every)
    outage.away = False
    assert (await engine.operations.carry_out(RETRY, "one", window, every)).done == 3


@pytest.mark.parametrize("selected", [False, True], ids=["commanded elsewhere", "commanded where it was selected"])
async def test_a_process_that_is_gone_is_counted_as_removed(opened: Open, selected: bool) -> None:
    engine, _ = await failed(opened, 3)
    every, window = await ids_of(engine), Window(await engine.store.now())
    if selected:
        assert (await engine.operations.select(RETRY, "one", window, None, 9)).processes == every
    await engine.process(every[0]).remove()
    carried = await engine.operations.carry_out(RETRY, "one", window, every)
    assert (carried.done, carried.left_out) == (2, {portion.REMOVED: 1})


async def test_pages_that_hold_few_that_fit_make_a_portion_together(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.client.finding.finder.LIST_ROWS", 4)
    monkeypatch.setattr("perdure.client.operation_orders.LIST_ROWS", 4)
    engine, _ = await failed(opened, 18)
    every, window = await ids_of(engine), Window(await engine.store.now())
    for id in every[::3]:
        await engine.process(id).retry()
    found: list[str] = []
    before, portions = None, 0
    while portions == 0 or before is not None:
        chosen = await engine.operations.select(RETRY, "one", window, before, 4)
        found, before, portions = found + chosen.processes, chosen.before, portions + 1
    assert found == [id for id in every if id not in every[::3]]
    assert portions <= 5


def test_reasons_that_are_too_many_to_show_are_counted_together() -> None:
    counts: dict[str, int] = {}
    for n in range(plan.REASONS + 7):
        plan.add_reasons(counts, {f"reason {n}": 1})
    plan.add_reasons(counts, {"reason 3": 2})
    assert len(counts) == plan.REASONS + 1
    assert (counts["reason 3"], counts[plan.OTHER], sum(counts.values())) == (3, 7, plan.REASONS + 9)


@pytest.mark.parametrize(("rate", "most"), [(None, machine.PORTION), (0.01, 1), (7.4, 7), (1e6, machine.PORTION)])
def test_a_portion_is_no_more_than_the_rate_allows_in_a_second(rate: float | None, most: int) -> None:
    assert machine.portion(rate) == most


@pytest.mark.parametrize("first", [True, False], ids=["first look", "later look"])
async def test_only_the_rows_of_the_portion_are_kept_of_all_that_fit_the_query(
    opened: Open, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    monkeypatch.setattr("perdure.client.finding.finder.LIST_ROWS", 4)
    monkeypatch.setattr("perdure.client.operation_orders.LIST_ROWS", 4)
    engine, store = await failed(opened, 30)
    every, until = await ids_of(engine), await engine.store.now()
    for id in every[-3:]:
        await engine.process(id).retry()
    hold = OperationPlan("hold", "kind = payment")
    window = Window(await engine.store.now(), 0 if first else until)
    chosen = await engine.operations.select(hold, "one", window, None, 2)
    assert chosen.processes == (every[:2] if first else every[-3:-1])
    assert [id_text(id) for id in engine.operations._read] == chosen.processes
    store.calls.clear()
    await engine.operations.carry_out(hold, "one", Window(window.until), chosen.processes)
    assert pages(store) == 1, "no row is read again, but what comes behind a portion is read ahead"
