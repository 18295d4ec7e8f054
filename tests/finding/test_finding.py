"""Processes found by queries, failures in groups, and the board, on both stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from perdure import Engine, Search, Status
from perdure.client.finding import finder
from perdure.client.view import ProcessView
from perdure.errors import InvalidInput, ProcessFailed
from perdure.kernel.event import EventType
from perdure.kernel.failure import Failure
from perdure.kernel.fingerprint import without_what_varies
from tests.finding import bank
from tests.runtime.conftest import LIMIT, Open, until_row

WAYS = ("refused", "refused", "down", "odd", "well")


async def some_of_each(opened: Open) -> Engine:
    """Payments A-0 to A-4 and a shipment that have ended, and one that waits for a signal."""
    engine, _ = await opened(work=True, workflows=[bank])
    for number, how in enumerate(WAYS):
        handle = await engine.start(
            bank.payment.options(key=f"A-{number}", attributes={"n": number}), f"A-{number}", how
        )
        await _ended(handle)
    await _ended(await engine.start(bank.shipment.options(key="A-0"), "A-0"))
    waits = await engine.start(bank.payment.options(key="W"), "W", "waits")
    await until_row(engine, waits.id, lambda row: row.awaiting)
    return engine


async def _ended(handle: Any) -> None:
    try:
        await handle.result(LIMIT)
    except ProcessFailed:
        pass


def keys(found: Sequence[ProcessView]) -> set[str]:
    return {f"{one.kind} {one.key}" for one in found}


async def test_a_query_finds_what_fits_it(opened: Open) -> None:
    engine = await some_of_each(opened)
    for where, expected in (
        ("error = CardRefused", {"payment A-0", "payment A-1"}),
        ("error in (CardRefused, ConnectionError) and attributes.n > 0", {"payment A-1", "payment A-2"}),
        ("step = charge and message ~ bank", {"payment A-2"}),
        ("status = failed and not step", {"payment A-3", "shipment A-0"}),
        ("kind = shipment or status = completed", {"shipment A-0", "payment A-4"}),
        ("mover = message", {"payment W"}),
        ("key = A-* and kind = payment and attributes.n <= 1", {"payment A-0", "payment A-1"}),
        ("status = completed and status = failed", set()),
        ("age > 1d", set()),
    ):
        assert keys(await engine.list(where=where)) == expected, where
    assert keys(await engine.list(Search(kind="payment"), where="error = ValueError")) == {"payment A-3"}
    assert await engine.count(where="status = failed") == {"payment": {"failed": 4}, "shipment": {"failed": 1}}


async def test_queued_steps_are_found_by_the_queries_that_can_mean_them(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[bank], queues=["ledger"])
    for order in ("A-1", "A-2"):
        await _ended(await engine.start(bank.booking.options(key=order), order))
    held = await engine.start(bank.payment.options(key="W"), "W", "odd")
    await _ended(held)
    groups = await engine.failures()
    assert sorted((group.kind, group.count) for group in groups) == [("@ledger", 2), ("booking", 2), ("payment", 1)]
    for group in groups:
        assert await engine.count(where=group.query) == {group.kind: {"failed": group.count}}
    for group in await engine.failures(by="worker"):
        assert await engine.count(where=group.query) == {group.kind: {"failed": group.count}}
    assert (await engine.rehearse("queue")).total == 0, "they have no code of their own"
    [parent, _] = await engine.list(where="kind = booking")
    [step] = await engine.list(where=f"parent = {parent.id}")
    for where, found in (
        (f"id = {step.id}", 1),
        (f"not parent = {parent.id} and parent", 1),
        ("kind = @ledger", 2),
        ("kind in (@ledger, payment)", 3),
        ("kind = *led*", 2),
        ("kind = @*", 2),
        ("kind ~ ledger", 2),
        ("queue = ledger", 2),
        ("queue", 2),
        ("error = ValueError", 3),
        ("kind = b*", 2),
        ("status = failed", 3),
    ):
        assert len(await engine.list(where=where)) == found, where
        assert sum(sum(one.values()) for one in (await engine.count(where=where)).values()) == found, where


async def test_an_id_of_ones_own_need_not_be_unique_and_is_found_by_its_beginning(opened: Open) -> None:
    engine, _ = await opened()
    for key, ticket in (("1", "TK-17"), ("2", "TK-17"), ("3", "TK-18"), ("4", "SO-17")):
        await engine.start(bank.payment.options(key=key, attributes={"ticket": ticket}), key)
    await engine.start(bank.payment.options(key="5"), "5")
    for where, expected in (
        ("attributes.ticket = TK-17", "12"),
        ("attributes.ticket = TK-*", "123"),
        ("attributes.ticket = TK-1* and key != 2", "13"),
        ("attributes.ticket = X*", ""),
    ):
        assert keys(await engine.list(where=where)) == {f"payment {key}" for key in expected}, where


async def test_every_page_is_read_until_enough_are_found(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder, "LIST_ROWS", 2)
    engine = await some_of_each(opened)
    assert keys(await engine.list(where="error = CardRefused")) == {"payment A-0", "payment A-1"}
    newest = await engine.list(Search(limit=1), where="error = CardRefused")
    assert len(newest) == 1
    [older] = await engine.list(Search(limit=9, before_id=newest[0].id), where="error = CardRefused")  # type: ignore[arg-type]
    assert {newest[0].key, older.key} == {"A-0", "A-1"}
    assert sum(sum(numbers.values()) for numbers in (await engine.count(where="key")).values()) == 7


async def test_failures_with_one_cause_are_one_group(opened: Open) -> None:
    engine = await some_of_each(opened)
    groups = await engine.failures()
    assert [(one.kind, one.step, one.type, one.count) for one in groups[:1]] == [
        ("payment", "charge", "CardRefused", 2)
    ]
    assert sorted((one.kind, one.step, one.type, one.message) for one in groups[1:]) == [
        ("payment", "", "ValueError", "order '…' is odd"),
        ("payment", "charge", "ConnectionError", "bank: no answer after … s"),
        ("shipment", "", "ValueError", "order '…' is odd"),
    ]
    [refused] = [one for one in groups if one.type == "CardRefused"]
    assert (refused.failed, refused.broken, refused.recent) == (2, 0, 2)
    assert refused.first is not None and refused.last is not None and refused.first <= refused.last
    assert keys(await engine.list(where=refused.query)) == {"payment A-0", "payment A-1"}
    assert "was refused" in refused.example and refused.sample in {
        one.id for one in await engine.list(where=refused.query)
    }
    assert [one.type for one in await engine.failures("step = charge", kind="payment")] == [
        "CardRefused",
        "ConnectionError",
    ]


async def test_failures_are_grouped_by_the_worker_on_which_they_happened(opened: Open) -> None:
    for name, ways in (("web-1:7", ("refused", "refused", "odd")), ("web-2:9", ("refused", "well"))):
        engine, _ = await opened(work=True, workflows=[bank])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine.machine, "name", lambda: name)  # noqa: B023
            for number, how in enumerate(ways):
                await _ended(await engine.start(bank.payment.options(key=f"{name}-{number}"), "A", how))
        await engine.close()
    client, _ = await opened()
    groups = await client.failures(by="worker")
    events = await client.process(groups[0].sample).history()
    [failed] = [Failure.shown(event.payload or b"") for event in events if event.type is EventType.STEP_FAILED]
    assert failed.worker == "web-1:7", "known of the step, whichever worker ends the process"
    assert [(one.worker, one.type, one.count) for one in groups] == [
        ("web-1:7", "CardRefused", 2), ("web-1:7", "ValueError", 1), ("web-2:9", "CardRefused", 1)
    ]  # fmt: skip
    assert keys(await client.list(where=groups[0].query)) == {"payment web-1:7-0", "payment web-1:7-1"}
    assert keys(await client.list(where="worker = web-2*")) == {"payment web-2:9-0"}
    assert [(one.worker, one.count) for one in await client.failures()] == [("", 3), ("", 1)]
    with pytest.raises(InvalidInput, match="Give one of: cause, worker"):
        await client.failures(by="moon")  # type: ignore[arg-type]


async def test_failures_of_which_no_worker_is_known_are_found_without_those_of_workers(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = await opened(work=True, workflows=[bank])
    for name in ("", "web-1:7"):
        monkeypatch.setattr(engine.machine, "name", lambda: name)  # noqa: B023
        await _ended(await engine.start(bank.payment.options(key=name or "-"), "A", "refused"))
    found = {one.worker: keys(await engine.list(where=one.query)) for one in await engine.failures(by="worker")}
    assert found == {"": {"payment -"}, "web-1:7": {"payment web-1:7"}}
    [both] = await engine.failures()
    assert keys(await engine.list(where=both.query)) == {"payment -", "payment web-1:7"}


async def test_the_board_counts_what_is_unfinished_by_who_moves_it_next(opened: Open) -> None:
    engine = await some_of_each(opened)
    held = await engine.start(bank.payment.options(key="H", delay=3600), "H")
    later = await engine.start(bank.payment.options(key="L", delay=3600), "L")
    await held.hold()
    assert [(one.kind, one.mover, one.count, one.overdue) for one in await engine.board()] == [
        ("payment", "message", 1, 0),
        ("payment", "person", 1, 0),
        ("payment", "timer", 1, 0),
    ]
    assert [one.mover for one in await engine.board("key = L")] == ["timer"]
    assert await engine.board(kind="shipment") == []
    assert (await later.status()).status is Status.RUNNING


async def test_a_wrong_query_is_refused_before_anything_is_read(opened: Open) -> None:
    engine, _ = await opened()
    for ask in (engine.list, engine.count):
        with pytest.raises(InvalidInput, match="there is no field"):
            await ask(where="colour = red")
    with pytest.raises(InvalidInput, match="there is no field"):
        await engine.failures("colour = red")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 of 4 in 12345678901", "order -18 of 5,000 in -1234567890123"),
        ("no row 0190b2d1-7c1a-7000-8000-0123456789ab", "no row 0190b2d1-0000-7000-8000-ba9876543210"),
        ("at 0x7f001234 in deadbeef99", "at 0x7f00abcd in 00ff00ff00"),
        ("key 'a' is taken", "key 'b c' is taken"),
        ("two\n  lines", "two lines"),
    ],
)
def test_what_varies_is_left_out(one: str, other: str) -> None:
    assert without_what_varies(one) == without_what_varies(other)


def test_what_does_not_vary_is_kept() -> None:
    assert without_what_varies("no money") != without_what_varies("no card")
    assert without_what_varies("facade added") == "facade added", "words of letters only are no numbers"


async def test_the_next_page_is_asked_for_before_the_caller_works_on_the_one_before() -> None:
    asked: list[int] = []

    async def pages() -> AsyncIterator[int]:
        for number in range(1, 4):
            asked.append(number)
            await asyncio.sleep(0)
            yield number

    async for number in finder.ahead(pages()):
        assert asked == [1, 2, 3][: number + 1]
    assert asked == [1, 2, 3]
