"""Refusals of what follows from an event: it has had effects by then, so it breaks the flow unless it is expected."""

from __future__ import annotations

import pytest

from perdure import Retry, flow, machine, step, testing
from perdure.errors import CallRefused, ProcessBroken
from perdure.kernel.process import Status
from tests.flows.transfer import ask, asked, sent
from tests.runtime.conftest import LIMIT, Open, until_row

strict: set[str] = set()
"""What refuses."""


class Overdrawn(machine.Refusal):
    """More than there is."""


class Unwilling(machine.Refusal):
    """An error that the action expects."""


@step(retry=Retry.NONE, raises=Overdrawn)
async def weigh() -> None:
    """Look at the account."""
    if "step" in strict:
        raise Overdrawn("there is less")


def refuse(what: str) -> None:
    """Refuse, if that is strict."""
    if what in strict:
        raise machine.Refusal(f"the {what} says no")


class Purse(flow.Flow):
    """It asks the bank, and then looks at what it was told."""

    what: str = ""

    open = flow.State(phase="OPEN")
    paying = flow.State(phase="PAYING")
    paid = flow.State(terminal=True, phase="PAID")

    @flow.init
    def begun(self) -> None:
        pass

    @flow.event
    def pay(self, what: str) -> None:
        self.what = what

    @flow.event
    def checked(self) -> None:
        pass

    @flow.event
    def declined(self) -> None:
        pass

    @flow.event
    def settled(self) -> None:
        pass

    @flow.condition
    def sound(self) -> bool:
        refuse("condition")
        return True

    @flow.request(timeout=100, retry=Retry(attempts=2, first=50, jitter=0), answers={"YES": settled})
    async def bank(self, id: str) -> None:
        await ask(self.what, id)
        refuse("request")

    @flow.action(errors={Unwilling: declined})
    async def check(self) -> flow.Happened:
        refuse("action")
        await weigh()
        if "expected" in strict:
            raise Unwilling
        return self.checked()

    behaviour = flow.table(
        flow.on(begun).to(open),
        flow.on(pay, in_=open).to(paying).do(bank, check),
        flow.on(checked, in_=paying, when=sound),
        flow.on(declined, in_=paying).to(open),
        flow.any_of(settled, bank.timed_out, in_=paying).to(paid),
    )


@pytest.fixture(autouse=True)
def _nothing_strict() -> None:
    strict.clear()


BREAKS = {
    "action": r"Purse\.check has raised Refusal\('the action says no'\), but only an event refuses",
    "request": r"Purse\.bank has raised Refusal\('the request says no'\), but only an event refuses",
    "condition": r"Purse\.sound has raised Refusal\('the condition says no'\), but only an event refuses",
    "step": r"Purse\.check has raised Overdrawn\('there is less'.*Name it in errors= of the action",
}
"""What the caller hears, by what refuses."""


@pytest.mark.parametrize("what", BREAKS)
async def test_a_refusal_of_what_follows_from_an_event_breaks_the_flow_and_a_retry_goes_on(
    opened: Open, what: str
) -> None:
    """It refused the call alone: the state stood in the attributes, and the next request went out under the same id."""
    strict.add(what)
    engine, _ = await opened(work=True)
    handle = await engine.start(Purse.begun)
    with pytest.raises(CallRefused, match=BREAKS[what]):
        await handle.call(Purse.pay, "bread")
    await until_row(engine, handle.id, lambda row: row.status is Status.BROKEN)
    with pytest.raises(ProcessBroken, match=rf"in Purse\.\w+: {BREAKS[what]}"):
        await handle.result(LIMIT)
    strict.clear()
    await handle.retry()
    await until_row(engine, handle.id, lambda row: b'"state":"paying"' in (row.state or b""))
    view = await handle.status()
    assert view.attributes == {"state": view.state["flow"]["state"], "phase": "PAYING"}
    assert sent == [("bread", await asked(handle, "bank"))]


async def test_a_request_that_refuses_to_be_sent_again_breaks_the_flow_and_says_what_to_do() -> None:
    async with testing.engine() as engine:
        handle = await engine.start(Purse.begun)
        assert await handle.call(Purse.pay, "bread") == "paying"
        strict.add("request")
        await engine.sleep(51)
        error = (await handle.status()).error
        assert error is not None and "Name it in errors= of the action" in error.message and len(sent) == 2


async def test_a_refusal_that_an_action_expects_leads_to_its_event(opened: Open) -> None:
    strict.add("expected")
    engine, _ = await opened(work=True)
    handle = await engine.start(Purse.begun)
    for what in ("bread", "wine"):
        assert await handle.call(Purse.pay, what) == "open"
    assert (await handle.status()).attributes == {"state": "open", "phase": "OPEN"}
    assert len({id for _, id in sent}) == 2
