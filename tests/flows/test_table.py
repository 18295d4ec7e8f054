"""The table of a flow: which event counts in which state, what it changes, and what becomes of one that fits none."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Handle, Search, Status, flow, limits, machine, testing
from perdure.errors import CallRefused, ProcessFailed
from perdure.testing.skipping_engine import SkippingEngine
from tests.flows.transfer import Transfer, asked, done, position
from tests.runtime.conftest import LIMIT, Open


async def clearing(engine: SkippingEngine, account: str = "Ann") -> Handle[Any]:
    """A transfer that the bank has reserved."""
    handle = await engine.start(Transfer.begun, account)
    await engine.sleep(0.001)
    assert await handle.call(Transfer.reserved, "R-1") == "clearing"
    return handle


async def test_an_event_changes_the_fields_and_the_state_and_the_row_does_its_action(opened: Open) -> None:
    engine, _ = await opened(work=True)
    handle = await engine.start(Transfer.begun, "Ann")
    await handle.signal(Transfer.reserved, "R-1")
    assert await handle.call(Transfer.noted, "thanks") == "settled"
    assert await handle.result(LIMIT) == "C-Ann"
    state = (await handle.status()).state
    assert (state["reservation"], state["notes"], state["flow"]["state"]) == ("R-1", ["thanks"], "settled")
    assert done["cleared Ann"] == 1


async def test_an_event_that_the_flow_does_not_have_is_refused_and_changes_nothing(opened: Open) -> None:
    engine, _ = await opened(work=True)
    client, _ = await opened()
    handle = client.process((await engine.start(Transfer.begun, "Ann")).id)
    with pytest.raises(CallRefused, match="Transfer has no method 'reservd'") as refused:
        await handle.call("reservd", ["R-1"])
    assert refused.value.type == "NoSuchMethod"
    assert "unexpected" not in await position(handle) or not (await position(handle))["unexpected"]
    assert await handle.call("reserved", ["R-1"]) == "clearing"


async def test_all_of_waits_for_each_event_in_any_order_and_for_each_once() -> None:
    async with testing.engine() as engine:
        handle = await clearing(engine)
        assert (await position(handle))["came"] == ["cleared"]
        with pytest.raises(CallRefused, match="cleared: it has come before in clearing"):
            await handle.call(Transfer.cleared, "C-2")
        assert (await handle.status()).state["receipt"] == "C-Ann"
        assert await handle.call(Transfer.noted, "thanks") == "settled"


async def test_a_row_for_any_state_counts_where_no_row_names_the_state() -> None:
    async with testing.engine() as engine:
        early, late = await engine.start(Transfer.begun, "Ann"), await clearing(engine, "Ben")
        assert await early.call(Transfer.refused, "RJCT") == "rejected"
        assert await late.call(Transfer.refused, "RJCT", reason="AC01") == "rejected"
        with pytest.raises(ProcessFailed, match="rejected: RJCT AC01"):
            await late.result()
        assert (await late.status()).status is Status.FAILED


async def test_a_signal_that_no_row_expects_is_kept_and_a_call_is_refused() -> None:
    async with testing.engine() as engine:
        handle = await engine.start(Transfer.begun, "Ann")
        await handle.signal(Transfer.noted, "too early")
        with pytest.raises(CallRefused, match="noted: no row expects it in reserving"):
            await handle.call(Transfer.noted, "too early as well")
        (kept,) = (await position(handle))["unexpected"]
        assert (kept["event"], kept["state"], kept["arguments"]) == ("noted", "reserving", ["too early"])
        assert (await handle.status()).state["notes"] == []


async def test_an_event_may_refuse_what_it_is_told_and_has_changed_nothing_then(opened: Open) -> None:
    engine, _ = await opened(work=True)
    handle = await engine.start(Transfer.begun, "Ann")
    await handle.signal(Transfer.reserved, "R-1")
    await handle.signal(Transfer.noted, "nonsense")
    with pytest.raises(CallRefused, match="that is nonsense"):
        await handle.call(Transfer.noted, "nonsense")
    stands = await position(handle)
    assert ([one["why"] for one in stands["unexpected"]], stands["passed_over"]) == (["that is nonsense"], 1)
    assert (await handle.status()).state["notes"] == []
    assert await handle.call(Transfer.noted, "sense") == "settled"


async def test_the_last_unexpected_events_are_kept_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UNEXPECTED_EVENTS", 2)
    monkeypatch.setattr(limits, "UNEXPECTED_BYTES", 20)
    async with testing.engine() as engine:
        handle = await engine.start(Transfer.begun, "Ann")
        for text in ("one", "two", "three" * 10):
            await handle.signal(Transfer.noted, text)
        await engine.sleep(0.001)
        stands = await position(handle)
        assert [one["arguments"] for one in stands["unexpected"]] == [["two"], None]
        assert stands["passed_over"] == 3


async def test_a_flow_is_found_by_its_state_and_by_its_phase(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann, ben = await engine.start(Transfer.begun, "Ann"), await engine.start(Transfer.begun, "Ben")
    assert await ben.call(Transfer.reserved, "R-1") == "clearing"

    async def found(**attributes: str) -> list[str]:
        pairs = tuple((name, f'"{value}"') for name, value in attributes.items())
        return [one.id for one in await engine.list(Search(attributes=pairs))]

    assert await found(phase="ACCEPTED") == await found(state="clearing") == [ben.id]
    assert await found(phase="PENDING") == await found(state="reserving") == [ann.id]
    assert await ann.call(Transfer.reserved, "R-2") == "clearing"
    assert await found(phase="PENDING") == []


async def test_an_expected_error_of_an_action_leads_to_its_event() -> None:
    async with testing.engine() as engine:
        handle = await engine.start(Transfer.begun, "poor")
        assert await handle.call(Transfer.reserved, "R-1") == "rejected"
        with pytest.raises(ProcessFailed, match="rejected: Declined no cover"):
            await handle.result()


class Lamp(flow.Flow):
    """A lamp that counts how often it was lit, and blows if it is switched in vain."""

    lit: int = 0
    steps: list[str] = machine.field(default_factory=list)

    off = flow.State()
    on = flow.State()
    warm = flow.State()
    blown = flow.State(terminal=True)

    @flow.init
    def made(self) -> None:
        pass

    @flow.event
    def switched(self) -> None:
        self.lit += 1

    @flow.event
    def flickered(self) -> None:
        pass

    @flow.event
    def burnt(self) -> None:
        pass

    @flow.event
    def looked_at(self) -> None:
        pass

    @flow.action
    async def flicker(self) -> flow.Happened:
        return self.flickered()

    @flow.action(answers={"HOT": burnt}, default=looked_at)
    async def feel(self) -> flow.Answer:
        self.steps.append("felt")
        return flow.Answer("HOT" if self.lit > 2 else "COLD")

    @flow.action
    async def write(self) -> None:
        self.steps.append("written")

    behaviour = flow.table(
        flow.on(made).to(off),
        flow.on(switched, in_=off).to(on),
        flow.on(switched).to(on).do(feel, write),
        flow.on(looked_at, in_=on).do(write),
        flow.on(burnt, in_=on).to(warm).do(flicker),
        flow.on(burnt).to(blown),
        flow.on(flickered, in_=warm).to(warm).do(flicker),
    )


async def test_a_row_that_names_the_state_stands_above_one_for_any_and_actions_run_in_their_order() -> None:
    async with testing.engine() as engine:
        handle = await engine.start(Lamp.made)
        assert await handle.call(Lamp.switched) == "on"
        assert (await handle.status()).state["steps"] == []
        assert await handle.call(Lamp.switched) == "on"
        view = await handle.status()
        assert view.state["steps"] == ["felt", "written", "written"], "its answer is taken after the actions of its row"
        assert view.state["flow"]["visit"] == 3, "a row without a target stays in its state"


async def test_a_flow_that_goes_round_without_waiting_is_broken_and_says_what_to_do() -> None:
    async with testing.engine() as engine:
        handle = await engine.start(Lamp.made)
        for _ in range(2):
            await handle.call(Lamp.switched)
        with pytest.raises(CallRefused, match="Put a state with a timeout on that way"):
            await handle.call(Lamp.switched)
        view = await handle.status()
        assert (view.status, view.state["lit"]) == (Status.BROKEN, 2)


async def test_an_answer_of_the_bank_is_taken_by_name_too(opened: Open) -> None:
    engine, _ = await opened(work=True)
    handle = await engine.start(Transfer.begun, "Ann")
    assert await handle.call(Transfer.reserved, "R-1") == "clearing"
    id = await asked(handle, "reserve")
    assert await handle.call("answer", [id, "RJCT", "AC04"]) == "rejected"
