"""Of all programs that ask, one leads: taking turns, waiting, and what is refused at the door, on both stores."""

from __future__ import annotations

import asyncio

import pytest

from perdure import BlockingEngine, Engine, workflow
from perdure.errors import IllegalMove, InvalidInput, InvalidKey, PerdureError, ProcessFailed, StoreUnavailable
from perdure.kernel.leader import Leader
from tests.runtime.conftest import LIMIT, Open, until

QUICK = 1.0
"""Seconds of a lease: who waits asks again after a third of it at most."""


async def test_one_leads_at_a_time_and_each_has_a_higher_term(opened: Open) -> None:
    engines = [(await opened())[0] for _ in range(3)]
    inside: list[int] = []
    terms: list[int] = []

    async def work(engine: Engine) -> None:
        for _ in range(2):
            async with engine.leader("import", lease=QUICK) as lead:
                assert inside == []
                inside.append(lead.term)
                await engine.store.now()
                await engine.store.now()
                terms.append(inside.pop())

    await asyncio.wait_for(asyncio.gather(*map(work, engines)), LIMIT)
    assert terms == [1, 2, 3, 4, 5, 6]


async def test_leaders_in_different_things_do_not_wait_for_each_other(opened: Open) -> None:
    engine, _ = await opened()
    async with engine.leader("import") as one, engine.leader("audit") as other:
        assert (one.term, other.term) == (1, 1)
        assert [view.name for view in await engine.leaders.list()] == ["audit", "import"]


async def test_who_leads_can_be_seen_and_who_led_last(opened: Open) -> None:
    engine, _ = await opened()
    assert not (await engine.leaders.state("import")).leads
    async with engine.leader("import"):
        seen = await engine.leaders.state("import")
        assert (seen.leads, seen.term, seen.program) == (True, 1, engine.machine.name())
        assert seen.since is not None and seen.until is not None
        assert 14 < (seen.until - seen.since).total_seconds() < 16
    after = await engine.leaders.state("import")
    assert (after.leads, after.term, after.program) == (False, 1, engine.machine.name())
    assert engine.metrics()["leaderships"] == 1 and engine.metrics()["leaderships_lost"] == 0


async def test_whoever_does_not_want_to_wait_for_long_gives_a_timeout_and_leads_in_nothing(opened: Open) -> None:
    engine, _ = await opened()
    other, _ = await opened()
    async with engine.leader("import"):
        with pytest.raises(TimeoutError):
            async with other.leader("import", timeout=0.05):
                raise AssertionError
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), other.leader("import", lease=QUICK):
                raise AssertionError
    await until(lambda: not other.leaders._asking)
    async with other.leader("import", timeout=LIMIT) as lead:
        assert lead.term == 2


async def test_who_is_cancelled_while_its_lease_is_written_gives_it_back(opened: Open) -> None:
    engine, store = await opened()
    written, answer = asyncio.Event(), asyncio.Event()
    asked: list[str] = []

    async def after(name: str, argument: object) -> None:
        asked.append(name)
        if asked.count("records") == 2:  # the first one only read
            written.set()
            await answer.wait()

    store.after = after

    async def lead() -> None:
        async with engine.leader("import"):
            raise AssertionError

    task = asyncio.create_task(lead())
    await asyncio.wait_for(written.wait(), LIMIT)
    task.cancel()
    await asyncio.wait([task])
    answer.set()
    await until(lambda: not engine.leaders._asking)
    assert not (await engine.leaders.state("import")).leads


async def test_a_lease_whose_answer_was_lost_is_found_again_and_not_waited_for(opened: Open) -> None:
    engine, store = await opened()
    asked: list[str] = []

    async def after(name: str, argument: object) -> None:
        if name == "records":
            asked.append(name)
            if len(asked) == 2:  # the first one only read
                raise StoreUnavailable("the connection died")

    store.after = after
    async with engine.leader("import", lease=QUICK, timeout=LIMIT) as lead:
        assert lead.term == 1
        [row] = await engine.store.records(Leader)
        assert row.version == 2, "it was renewed, for the time that has passed"


async def test_a_block_that_is_cancelled_or_fails_gives_its_lease_back(opened: Open) -> None:
    engine, _ = await opened()
    begun = asyncio.Event()

    async def work() -> None:
        async with engine.leader("import"):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not (await engine.leaders.state("import")).leads
    with pytest.raises(ZeroDivisionError):
        async with engine.leader("import", timeout=LIMIT):
            raise ZeroDivisionError
    assert not (await engine.leaders.state("import")).leads


async def test_bad_input_is_refused_before_anything_is_asked(opened: Open) -> None:
    engine, store = await opened()
    with pytest.raises(InvalidKey):
        engine.leader("")
    for lease in (0.5, 3601, "15"):
        with pytest.raises(InvalidInput, match="lease"):
            engine.leader("import", lease=lease)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="timeout"):
        engine.leader("import", timeout=-1)
    with pytest.raises(InvalidInput, match="heartbeat_timeout"):
        engine.leader("import", heartbeat_timeout=0)
    assert [call for call in store.calls if call[0] == "records"] == []
    lead = engine.leader("import")
    async with lead:
        with pytest.raises(PerdureError, match="entered once"):
            await lead.__aenter__()


async def test_workflow_code_cannot_lead(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[leading])
    held.append(engine)
    try:
        with pytest.raises(ProcessFailed, match="workflow code"):
            await (await engine.start(leading)).result(LIMIT)
    finally:
        held.clear()


held: list[Engine] = []


@workflow
async def leading() -> None:
    async with held[0].leader("import"):
        pass


async def test_nobody_can_be_released_where_nobody_leads(opened: Open) -> None:
    engine, _ = await opened()
    with pytest.raises(IllegalMove, match="no program leads"):
        await engine.leaders.release("import", who="ana")


def test_leaders_are_seen_and_released_without_an_event_loop(store_url: str) -> None:
    with BlockingEngine(store_url, migrate=True) as engine:
        assert engine.leaders.list() == []
        assert engine.leaders.state("import").leads is False
        with pytest.raises(IllegalMove):
            engine.leaders.release("import")
