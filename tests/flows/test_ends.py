"""How a flow ends, is aborted, broken, held and resumed, and what new code means for one that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure import Engine, Handle, Status, flow, limits, machine, testing
from perdure.errors import CallRefused, CallUnanswered, IllegalMove, ProcessFailed
from perdure.kernel.message import SendVerdict
from tests.flows.transfer import Transfer, asked, done, down, position, sent
from tests.runtime.conftest import LIMIT, Open, until, until_row


async def begun(opened: Open) -> tuple[Engine, Handle[Any], str]:
    """A transfer that waits for the bank, and the id of what it asks."""
    engine, _ = await opened(work=True)
    handle = await engine.start(Transfer.begun, "Ann")
    await until_row(engine, handle.id, lambda row: b'"sends":1' in (row.state or b""))
    return engine, handle, await asked(handle, "reserve")


async def test_an_aborted_flow_has_failed_with_the_reason_and_refuses_to_be_resumed(opened: Open) -> None:
    _, handle, id = await begun(opened)
    assert await handle.call(Transfer.abort, "a fraud") == "aborted"
    with pytest.raises(ProcessFailed, match="Aborted: a fraud"):
        await handle.result(LIMIT)
    view = await handle.status()
    stands = view.state["flow"]
    assert view.attributes == {"state": "aborted", "phase": "ABORTED"}
    assert (stands["aborted"], stands["requests"], stands["due"]) == ("a fraud", [], {})
    with pytest.raises(IllegalMove):
        await handle.resume()
    assert await handle.signal(Transfer.answer, id, "ACCP", value="R-17") is SendVerdict.FINISHED
    with pytest.raises(CallUnanswered):
        await handle.call(Transfer.answer, id, "ACCP", value="R-17")
    assert (await handle.status()).state["reservation"] == ""


async def test_after_an_abort_no_timer_fires_and_nothing_is_sent() -> None:
    async with testing.engine() as engine:
        handle = await engine.start(Transfer.begun, "Ann")
        await handle.signal(Transfer.abort, "a fraud")
        with pytest.raises(ProcessFailed):
            await handle.result()
        await engine.sleep(3600)
        assert len(sent) == 1


async def test_a_flow_that_has_ended_as_failed_ends_again_if_it_is_retried(opened: Open) -> None:
    engine, handle, _ = await begun(opened)
    assert await handle.call(Transfer.refused, "RJCT") == "rejected"
    for _ in range(2):
        with pytest.raises(ProcessFailed, match="rejected: RJCT"):
            await handle.result(LIMIT)
        run = (await engine.row(handle.id)).run
        await handle.retry()
        await until_row(engine, handle.id, lambda row, run=run: row.run > run and row.status is Status.FAILED)
    assert (await position(handle))["visit"] == 2


async def test_a_flow_that_is_held_takes_no_answer_and_no_timeout_until_it_is_resumed(opened: Open) -> None:
    engine, handle, id = await begun(opened)
    await handle.hold()
    await handle.signal(Transfer.answer, id, "ACCP", value="R-17")
    assert (await engine.row(handle.id)).status is Status.HELD
    assert (await position(handle))["state"] == "reserving"
    await handle.resume()
    assert await handle.call(Transfer.noted, "thanks") == "settled"


async def test_an_unexpected_error_breaks_it_names_the_action_and_a_retry_goes_on(opened: Open) -> None:
    engine, handle, _ = await begun(opened)
    down.add("settlement")
    with pytest.raises(CallRefused, match="no settlement today"):
        await handle.call(Transfer.reserved, "R-17")
    row = await until_row(engine, handle.id, lambda row: row.status is Status.BROKEN)
    assert b"in Transfer.clear: " in (row.error or b"")
    assert (await position(handle))["state"] == "reserving"
    down.clear()
    await handle.retry()
    assert await handle.call(Transfer.noted, "thanks") == "settled"
    assert (done["cleared Ann"], len(sent)) == (2, 1)


async def test_a_running_flow_keeps_its_version(opened: Open) -> None:
    class V1(flow.Flow, name="signing", version="1"):
        open = flow.State()
        signed = flow.State(terminal=True)

        @flow.init
        def begun(self) -> None:
            pass

        @flow.event
        def approved(self) -> None:
            pass

        behaviour = flow.table(flow.on(begun).to(open), flow.on(approved, in_=open).to(signed))

    engine, _ = await opened(work=True)
    old = await engine.start(V1.begun)

    class V2(flow.Flow, name="signing", version="2"):
        open = flow.State()
        doubly_signed = flow.State(terminal=True)

        @flow.init
        def begun(self) -> None:
            pass

        @flow.event
        def approved(self) -> None:
            pass

        behaviour = flow.table(flow.on(begun).to(open), flow.on(approved, in_=open).to(doubly_signed))

    await engine.close(0)
    engine, _ = await opened(work=True)
    new = await engine.start(V2.begun)
    assert await engine.process(old.id).call(V1.approved) == "signed"
    assert await new.call(V2.approved) == "doubly_signed"


class Old(flow.Flow, name="ticket", version="1"):
    """As it was."""

    new = flow.State()
    closed = flow.State(terminal=True)

    @flow.init
    def begun(self) -> None:
        pass

    @flow.event
    def done(self) -> None:
        pass

    behaviour = flow.table(flow.on(begun).to(new), flow.on(done, in_=new).to(closed))


async def test_a_flow_in_a_state_that_new_code_does_not_have_is_broken_and_not_lost(tmp_path: Path) -> None:
    async with testing.engine(folder=tmp_path, workflows=[Old.__machine__]) as engine:
        handle = await engine.start(Old.begun)
        await engine.sleep(0.001)

    class Renamed(flow.Flow, name="ticket", version="1"):
        fresh = flow.State()
        closed = flow.State(terminal=True)

        @flow.init
        def begun(self) -> None:
            pass

        @flow.event
        def done(self) -> None:
            pass

        behaviour = flow.table(flow.on(begun).to(fresh), flow.on(done, in_=fresh).to(closed))

    async with testing.engine(folder=tmp_path, workflows=[Renamed.__machine__]) as engine:
        with pytest.raises(CallRefused, match=r"stands in the state 'new', which .*Renamed does not have"):
            await engine.process(handle.id).call(Renamed.done)
    async with testing.engine(folder=tmp_path, workflows=[Old.__machine__]) as engine:
        await engine.process(handle.id).retry()
        assert await engine.process(handle.id).result() == "closed"


class Ledger(flow.Flow):
    """Its repair mends what no retry can."""

    total: int = 0

    open = flow.State()
    closed = flow.State(terminal=True, result="total")

    @flow.init
    def begun(self) -> None:
        pass

    @flow.event
    def booked(self, cents: int) -> None:
        self.total += 100 // cents

    @flow.event
    def ended(self) -> None:
        pass

    @machine.repair
    def corrected(self, total: int) -> None:
        self.total = total

    behaviour = flow.table(
        flow.on(begun).to(open),
        flow.on(booked, in_=open),
        flow.on(ended, in_=open).to(closed),
    )


async def test_a_flow_whose_history_begins_anew_stands_where_it_stood(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FOLDED_RECORDS", 10)
    engine, _ = await opened(work=True)
    handle = await engine.start(Ledger.begun)
    for _ in range(12):
        assert await handle.call(Ledger.booked, 50) == "open"
    assert (await engine.row(handle.id)).run > 1
    view = await handle.status()
    assert (view.attributes, view.state["flow"]["visit"]) == ({"state": "open", "phase": "PENDING"}, 1)
    await handle.signal(Ledger.ended)
    assert await handle.result(LIMIT) == 24


async def test_a_repair_is_a_machine_s_and_leaves_the_state(opened: Open) -> None:
    engine, _ = await opened(work=True)
    handle = await engine.start(Ledger.begun)
    with pytest.raises(CallRefused, match="ZeroDivisionError"):
        await handle.call(Ledger.booked, 0)
    await until_row(engine, handle.id, lambda row: row.status is Status.BROKEN)
    await handle.repair(Ledger.corrected, 7)
    assert await handle.call(Ledger.booked, 50) == "open"
    await handle.signal(Ledger.ended)
    assert await handle.result(LIMIT) == 9


class Loan(flow.Flow):
    """What is to be done when its time is over fails until somebody has corrected the sum."""

    cents: int = 0

    lent = flow.State(timeout=60)
    closed = flow.State(terminal=True, result="cents")

    @flow.init
    def begun(self) -> None:
        pass

    @flow.action
    async def collect(self) -> None:
        100 // self.cents

    @machine.repair
    def corrected(self, cents: int) -> None:
        self.cents = cents

    behaviour = flow.table(
        flow.on(begun).to(lent),
        flow.on(lent.timed_out, in_=lent).to(closed).do(collect),
    )


async def test_a_flow_that_a_timeout_has_broken_meets_it_again_after_a_repair() -> None:
    """Else nothing might ever lead it out of that state."""
    async with testing.engine() as engine:
        handle = await engine.start(Loan.begun)
        await engine.sleep(61)
        for cents in (0, 7):
            assert (await handle.status()).status is Status.BROKEN
            await handle.repair(Loan.corrected, cents)
            await engine.sleep(1)
        assert await handle.result() == 7


async def test_a_flow_whose_worker_dies_in_an_action_goes_on_with_it_and_sends_nothing_twice(opened: Open) -> None:
    engine, handle, _ = await begun(opened)
    client, _ = await opened()
    await engine.close(0)
    before = len(sent)
    await client.process(handle.id).signal(Transfer.reserved, "R-17")
    again, _ = await opened(work=True)
    await until(lambda: done["cleared Ann"])
    assert await again.process(handle.id).call(Transfer.noted, "thanks") == "settled"
    assert (done["cleared Ann"], len(sent)) == (1, before)
