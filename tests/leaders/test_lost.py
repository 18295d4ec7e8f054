"""A leader that cannot renew its lease stops before another leads: cut off, released, stalled, closed."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import pytest
from msgspec.structs import replace

from perdure import Engine
from perdure.errors import LeadershipLost, StoreUnavailable
from perdure.kernel.leader import won
from perdure.testing.faults import FaultyStore
from tests.runtime.conftest import LIMIT, Open, until

QUICK = 1.0
CALM = 3.0
"""A lease that a busy machine does not lose: where a test is not about a lease that lapses."""


def cut_off(store: FaultyStore) -> None:
    """From now on the database cannot be reached."""

    async def before(name: str, argument: object) -> None:
        raise StoreUnavailable("cut off")

    store.before = before


async def test_a_leader_that_is_cut_off_has_stopped_before_another_leads(opened: Open) -> None:
    engine, store = await opened()
    other, _ = await opened()
    order: list[str] = []

    begun = asyncio.Event()

    async def first() -> None:
        async with engine.leader("import", lease=QUICK):
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                order.append("stopped")

    task = asyncio.create_task(first())
    await begun.wait()
    cut_off(store)
    async with other.leader("import", lease=QUICK, timeout=LIMIT) as lead:
        order.append("another leads")
        assert lead.term == 2
    with pytest.raises(LeadershipLost, match="could not be renewed in time: cut off"):
        await task
    assert order == ["stopped", "another leads"]
    assert engine.metrics()["leaderships_lost"] == 1


async def test_a_leader_renews_its_lease_as_long_as_its_block_lasts(opened: Open) -> None:
    engine, _ = await opened()
    other, _ = await opened()
    async with engine.leader("import", lease=CALM) as lead:
        with pytest.raises(TimeoutError):
            async with other.leader("import", lease=CALM, timeout=1.2 * CALM):
                raise AssertionError
        lead.check()


async def test_a_short_outage_is_bridged_by_what_is_left_of_the_lease(opened: Open) -> None:
    engine, store = await opened()
    failed: list[str] = []

    async def before(name: str, argument: object) -> None:
        if name == "now" and len(failed) < 4:
            failed.append(name)
            raise StoreUnavailable("restarting")

    async with engine.leader("import", lease=CALM) as lead:
        [before_it] = await engine.leaders.list()
        store.before = before
        await until(lambda: len(failed) == 4)
        while (await engine.leaders.state("import")).until == before_it.until:
            pass
        lead.check()


async def test_a_person_asks_a_leader_to_stop_and_its_program_lets_others_go_first(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    engine, _ = await opened()
    other, _ = await opened()
    caplog.set_level(logging.INFO, "perdure.leader")

    async def work() -> None:
        async with engine.leader("import", lease=CALM):
            seen = await other.leaders.release("import", who="ana", why="a new version")
            assert (seen.leads, seen.released, seen.who) == (True, True, "ana"), "it leads until it has stopped"
            await asyncio.Event().wait()

    with pytest.raises(LeadershipLost, match="ana has released it: a new version"):
        await work()
    view = await other.leaders.state("import")
    assert (view.leads, view.term) == (False, 1)
    with pytest.raises(TimeoutError):
        async with engine.leader("import", lease=LIMIT, timeout=0.2):
            raise AssertionError
    async with other.leader("import", timeout=LIMIT) as lead:
        assert lead.term == 2 and not (await other.leaders.state("import")).released
    async with engine.leader("import", lease=LIMIT, timeout=LIMIT) as lead:
        assert lead.term == 3, "another one has led meanwhile"
    lines = [record.getMessage() for record in caplog.records if record.name == "perdure.leader"]
    assert lines[1] == "leader import, term 1, stops: ana has released it: a new version"


async def test_a_leader_that_was_released_before_it_heard_that_it_leads_does_not_begin(opened: Open) -> None:
    engine, store = await opened()
    other, _ = await opened()

    async def after(name: str, argument: object) -> None:
        if (await other.leaders.state("import")).leads:
            store.after = _nothing
            assert (await other.leaders.release("import", who="ana", why="a new version")).released
            raise StoreUnavailable("the answer was lost")

    store.after = after
    with pytest.raises(LeadershipLost, match="ana has released it: a new version"):
        async with engine.leader("import", lease=CALM):
            raise AssertionError
    await until(lambda: not engine.leaders._asking)
    assert not (await engine.leaders.state("import")).leads, "it is given back at once"
    with pytest.raises(TimeoutError):
        async with engine.leader("import", lease=LIMIT, timeout=0.2):
            raise AssertionError
    async with other.leader("import", timeout=LIMIT) as lead:
        assert lead.term == 2


async def _nothing(name: str, argument: object) -> None:
    """Nothing goes wrong any more."""


async def test_a_leader_whose_lease_another_has_taken_stops_when_it_next_renews(opened: Open) -> None:
    engine, _ = await opened()

    async def work() -> None:
        async with engine.leader("import", lease=CALM):
            row, now = await engine.leaders.row("import"), await engine.store.now()
            while True:  # the clock of the store was put forward, and another program was quick
                other = won(replace(row, until=0), "another", "paris:12", now, 15_000_000)
                assert other is not None
                if (row := await engine.leaders.written(other)) == other:
                    await asyncio.Event().wait()

    with pytest.raises(LeadershipLost, match="paris:12 leads in term 2"):
        await work()
    assert (await engine.leaders.state("import")).program == "paris:12", "nothing of another's lease is given back"


async def test_a_leader_whose_work_does_not_report_is_not_renewed_although_its_loop_lives(opened: Open) -> None:
    engine, _ = await opened()
    with pytest.raises(LeadershipLost, match="has not reported"):
        async with engine.leader("import", lease=QUICK, heartbeat_timeout=0.1):
            await asyncio.Event().wait()
    assert not (await engine.leaders.state("import")).leads, "its block has ended, so others need not wait"


async def test_a_leader_whose_work_reports_goes_on(opened: Open) -> None:
    engine, _ = await opened()
    async with engine.leader("import", lease=CALM, heartbeat_timeout=0.5) as lead:
        first = (await engine.leaders.state("import")).until
        for _ in range(3):
            while (await engine.leaders.state("import")).until == first:
                lead.heartbeat()
            first = (await engine.leaders.state("import")).until
        lead.check()


async def test_code_that_swallows_the_cancel_is_told_when_it_checks(opened: Open) -> None:
    engine, store = await opened()

    async def work() -> None:
        async with engine.leader("import", lease=QUICK) as lead:
            cut_off(store)
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            lead.check()

    with pytest.raises(LeadershipLost, match="could not be renewed"):
        await work()


async def test_a_cancel_that_the_block_does_not_meet_meets_nothing_behind_it(opened: Open) -> None:
    engine, _ = await opened()
    task = asyncio.current_task()
    assert task is not None
    with pytest.raises(LeadershipLost, match="the test says so"):
        async with engine.leader("import") as lead:
            lead.lose("the test says so")
    assert task.cancelling() == 0
    await asyncio.sleep(0)

    async def work() -> None:
        async with engine.leader("import", timeout=LIMIT) as lead:
            lead.lose("the test says so")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_a_cancel_from_outside_is_not_taken_for_ours(opened: Open) -> None:
    engine, _ = await opened()

    async def work() -> None:
        async with engine.leader("import") as lead:
            lead.lose("the test says so")
            task.cancel()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_engine_that_is_closed_leads_no_more_and_those_who_wait_are_told(opened: Open) -> None:
    engine, _ = await opened()
    other, _ = await opened()
    begun = asyncio.Event()

    async def lead(engine: Engine) -> None:
        async with engine.leader("import"):
            begun.set()
            await asyncio.Event().wait()

    leading = asyncio.create_task(lead(engine))
    await begun.wait()
    waiting = asyncio.create_task(lead(engine))
    await until(lambda: len(engine.leaders._asking) == 2)
    await engine.close()
    for task in (leading, waiting):
        with pytest.raises(LeadershipLost, match="its engine was closed"):
            await task
    async with other.leader("import", timeout=LIMIT) as led:
        assert led.term == 2, "the lease was given back"
