"""Requests of a flow: when they are sent again, what ends that, and where their answers lead."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine, Handle, Retry, Status, flow, testing
from perdure.errors import CallRefused, InvalidInput, InvalidKey, ProcessFailed
from perdure.testing.skipping_engine import SkippingEngine
from tests.flows.transfer import Transfer, ask, asked, down, position, sent
from tests.runtime.conftest import Open, until


async def begun(engine: SkippingEngine, account: str = "Ann") -> tuple[Handle[Any], str]:
    """A transfer that waits for the bank, and the id of what it asks."""
    handle = await engine.start(Transfer.begun, account)
    await engine.sleep(0.001)
    return handle, await asked(handle, "reserve")


async def resent(engine: SkippingEngine, seconds: float) -> list[float]:
    """After how many of the seconds that follow something was asked again; real time passes too, while tests wait."""
    begun, seen, times = engine.now(), len(sent), list[float]()
    while (engine.now() - begun).total_seconds() < seconds:
        await engine.sleep(0.25)
        times += [(engine.now() - begun).total_seconds()] * (len(sent) - seen)
        seen = len(sent)
    return times


async def test_it_is_sent_at_0_3_and_6_seconds_and_given_up_at_10() -> None:
    async with testing.engine() as engine:
        handle, id = await begun(engine)
        assert await resent(engine, 9) == pytest.approx([3, 6], abs=1)
        assert sent == [("bank", id)] * 3
        with pytest.raises(ProcessFailed, match="rejected"):
            await handle.result()
        history = await handle.history()
        assert history[-1].at - history[0].at == pytest.approx(10_000_000, abs=100_000)
        assert len(sent) == 3, "after the timeout to a terminal state nothing is sent"


async def test_a_completing_answer_ends_the_retries_and_its_code_leads_to_the_event() -> None:
    async with testing.engine() as engine:
        handle, id = await begun(engine)
        assert await handle.call(Transfer.answer, id, "ACCP", value="R-17") == "clearing"
        assert (await handle.status()).state["reservation"] == "R-17"
        await engine.sleep(60)
        assert len(sent) == 1
        assert (await position(handle))["state"] == "clearing"


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [("RJCT", "AC04", "rejected: closed: AC04"), ("RJCT", "AC01", "rejected: RJCT AC01"), ("XXXX", "", "XXXX")],
    ids=["a reason stands above the code", "default for the reason", "default for the code"],
)
async def test_an_answer_leads_by_code_and_reason_or_by_default(code: str, reason: str, error: str) -> None:
    async with testing.engine() as engine:
        handle, id = await begun(engine)
        await handle.signal(Transfer.answer, id, code, reason)
        with pytest.raises(ProcessFailed, match=error):
            await handle.result()


async def test_an_interim_answer_that_changes_the_state_ends_no_retries_and_no_timeout() -> None:
    async with testing.engine() as engine:
        handle, id = await begun(engine)
        assert await handle.call(Transfer.answer, id, "PDNG") == "waiting"
        first, second = await resent(engine, 7)  # reckoned from now, which a busy machine may delay
        assert second - first == pytest.approx(3, abs=1) and first < 4
        assert await asked(handle, "reserve") == id
        await engine.sleep(5)
        assert (await handle.status()).status is Status.FAILED


async def test_a_completing_answer_counts_in_the_state_to_which_an_interim_one_has_led() -> None:
    async with testing.engine() as engine:
        handle, id = await begun(engine)
        await handle.signal(Transfer.answer, id, "PDNG")
        assert await handle.call(Transfer.answer, id, "ACCP", value="R-17") == "clearing"
        await engine.sleep(60)
        assert len(sent) == 1


async def test_what_is_no_answer_changes_nothing_and_is_kept(opened: Open) -> None:
    engine, _ = await opened(work=True)
    handle = await engine.start(Transfer.begun, "Ann")
    await until(lambda: sent)
    ((_, id),) = sent
    with pytest.raises(CallRefused, match="no request with the id 'other' is open"):
        await handle.call(Transfer.answer, "other", "ACCP")
    with pytest.raises(CallRefused, match="reservation"):
        await handle.call(Transfer.answer, id, "ACCP", value=["R", 17])
    await handle.signal(Transfer.answer, id, "ACCP", value="R-17")
    await handle.signal(Transfer.answer, id, "ACCP", value="R-18")
    with pytest.raises(CallRefused):
        await handle.call(Transfer.answer, id, "ACCP", value="R-19")
    (late,) = (await position(handle))["unexpected"]
    assert (late["arguments"], late["state"]) == ([id, "ACCP", "", "R-18"], "clearing")
    assert (await handle.status()).state["reservation"] == "R-17"


async def test_a_send_that_fails_counts_as_sent_and_is_shown_until_one_succeeds() -> None:
    down.add("bank")
    async with testing.engine() as engine:
        handle, id = await begun(engine)
        (request,) = (await position(handle))["requests"]
        assert ("bank is down" in request["trouble"], request["sends"]) == (True, 1)
        down.clear()
        await engine.sleep(4)
        (request,) = (await position(handle))["requests"]
        assert (request["trouble"], request["sends"], request["id"]) == ("", 2, id)


async def test_an_error_that_gives_a_request_up_leads_to_its_event_and_nothing_is_sent_again() -> None:
    async with testing.engine() as engine:
        handle = await engine.start(Transfer.begun, "nobody")
        with pytest.raises(ProcessFailed, match="rejected: Unknown nobody has no account"):
            await handle.result()
        assert len(sent) == 1


async def test_a_retry_that_became_due_while_no_worker_ran_is_not_sent_if_an_answer_waits(tmp_path: Path) -> None:
    async with testing.engine(folder=tmp_path) as engine:
        handle, id = await begun(engine)
        later = engine.now() + timedelta(seconds=5)
    async with Engine(f"sqlite:///{tmp_path}/perdure.db") as client:
        await client.process(handle.id).signal(Transfer.answer, id, "ACCP", value="R-17")
    async with testing.engine(folder=tmp_path, begins=later) as engine:
        assert await engine.process(handle.id).call(Transfer.noted, "thanks") == "settled"
    assert len(sent) == 1


async def test_what_became_due_while_no_worker_ran_is_done_and_a_timeout_comes_before_a_retry(tmp_path: Path) -> None:
    async with testing.engine(folder=tmp_path) as engine:
        ann, _ = await begun(engine)
        later = engine.now() + timedelta(seconds=5)
    async with testing.engine(folder=tmp_path, begins=later) as engine:
        await until(lambda: len(sent) == 2)
        ben, _ = await begun(engine, "Ben")
        later = engine.now() + timedelta(seconds=11)
    before = len(sent)  # three, or more if the time has skipped ahead to the next retry of the first
    async with testing.engine(folder=tmp_path, begins=later) as engine:
        for handle in (ann, ben):
            with pytest.raises(ProcessFailed, match="rejected"):
                await engine.process(handle.id).result()
    assert len(sent) == before >= 3


async def test_who_answers_needs_the_id_alone() -> None:
    async with testing.engine() as engine:
        handle, id = await begun(engine)
        assert flow.process_of(id) == handle.id
        await engine.process(flow.process_of(id)).signal(Transfer.answer, id, "ACCP", value="R-17")
        assert await handle.call(Transfer.noted, "thanks") == "settled"
    for wrong in ("R-17", "", "R/17", 17):
        with pytest.raises((InvalidInput, InvalidKey)):
            flow.process_of(wrong)  # type: ignore[arg-type]


class Inquiry(flow.Flow):
    """In its first state it asks once; in the next it asks after 20 and 40 seconds; then it asks somebody else."""

    asking = flow.State()
    waiting = flow.State()
    calm = flow.State()
    stuck = flow.State()
    answered = flow.State(terminal=True)
    withdrawn = flow.State(terminal=True)

    @flow.init
    def begun(self) -> None:
        pass

    @flow.event
    def seen(self) -> None:
        pass

    @flow.event
    def replied(self) -> None:
        pass

    @flow.event
    def hurried(self) -> None:
        pass

    @flow.event
    def given_up(self) -> None:
        pass

    @flow.request(timeout=15, answers={"SEEN": flow.interim(seen)}, default=replied)
    async def inquire(self, id: str) -> None:
        await ask("clerk", id)

    @flow.request(timeout=60, retry=Retry(attempts=3, first=10, jitter=0), default=replied)
    async def escalate(self, id: str) -> None:
        await ask("chief", id)

    behaviour = flow.table(
        flow.on(begun).to(asking).do(inquire),
        flow.on(seen, in_=asking)
        .to(waiting)
        .do(inquire.options(retry=Retry(backoffs=[20, 40], jitter=0), timeout=100)),
        flow.on(seen, in_=waiting).to(calm),
        flow.on(inquire.timed_out).to(stuck).do(escalate),
        flow.on(replied).to(answered),
        flow.on(hurried, in_=stuck).stop(escalate),
        flow.any_of(given_up, escalate.timed_out, in_=stuck).to(withdrawn),
    )


async def test_without_retries_it_is_sent_once() -> None:
    async with testing.engine() as engine:
        await engine.start(Inquiry.begun)
        await engine.sleep(14)
        assert [system for system, _ in sent] == ["clerk"]


async def test_each_state_may_have_its_own_delays_and_a_new_request_its_own_id() -> None:
    """The way round of the guide: none in the first state, a list of delays in the later one."""
    async with testing.engine() as engine:
        handle = await engine.start(Inquiry.begun)
        await engine.sleep(0.001)
        first = await asked(handle, "inquire")
        assert await handle.call(Inquiry.answer, first, "SEEN") == "waiting"
        second = await asked(handle, "inquire")
        assert second != first
        with pytest.raises(CallRefused, match="no request with the id"):
            await handle.call(Inquiry.answer, first, "DONE")
        assert await handle.call(Inquiry.answer, second, "SEEN") == "calm"
        assert await resent(engine, 70) == pytest.approx([20, 60], abs=8), "as the state before has set it"
        assert await handle.call(Inquiry.answer, second, "DONE") == "answered"


async def test_a_timeout_to_another_state_is_retried_by_the_request_of_that_state() -> None:
    async with testing.engine() as engine:
        handle = await engine.start(Inquiry.begun)
        await engine.sleep(16)
        assert (await position(handle))["state"] == "stuck"
        await engine.sleep(35)
        assert [system for system, _ in sent] == ["clerk", "chief", "chief", "chief"]
        await engine.sleep(30)
        assert await handle.result() == "withdrawn"


async def test_a_row_may_give_a_request_up_whose_answer_is_late_then() -> None:
    async with testing.engine() as engine:
        handle = await engine.start(Inquiry.begun)
        await engine.sleep(16)
        id = await asked(handle, "escalate")
        assert await handle.call(Inquiry.hurried) == "stuck"
        await engine.sleep(600)
        assert [system for system, _ in sent] == ["clerk", "chief"]
        with pytest.raises(CallRefused, match="no request with the id"):
            await handle.call(Inquiry.answer, id, "DONE")
        assert await handle.call(Inquiry.given_up) == "withdrawn"
