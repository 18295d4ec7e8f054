"""Flags of a state: its actions run at most once, or the flow leaves memory as soon as they are done."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Engine, Handle, Policy, Retry, Status, WorkerOptions, flow, step
from perdure.errors import DefinitionError, StepOutcomeUnknown
from tests.flows.transfer import ask, asked, done, gates, note, position, sent, waits
from tests.runtime.conftest import LIMIT, Open, lose, until, until_row


@step(retry=Retry(attempts=3, first=0))
async def stumbles(what: str) -> None:
    """Fail."""
    done[what] += 1
    raise OSError("no luck")


class Payout(flow.Flow):
    """It pays at most once, also when its worker dies; a claim is then made once more than known."""

    sleepy: bool = False

    ready = flow.State()
    paying = flow.State(at_most_once=True)
    claiming = flow.State(at_most_once=True)
    telling = flow.State(passivating=True)
    trying = flow.State(at_most_once=True)
    paid = flow.State(terminal=True)
    unclear = flow.State(terminal=True)

    @flow.init
    def begun(self) -> None:
        pass

    @flow.event
    def ordered(self) -> None:
        pass

    @flow.event
    def claimed(self) -> None:
        pass

    @flow.event
    def told(self) -> None:
        pass

    @flow.event
    def tried(self) -> None:
        pass

    @flow.event
    def settled(self) -> None:
        pass

    @flow.event
    def lost(self) -> None:
        pass

    @flow.action
    async def pay(self) -> flow.Happened:
        await note("before")
        await waits("pay")
        await note("after")
        return self.settled()

    @flow.action(errors={OSError: settled, StepOutcomeUnknown: lost})
    async def attempt(self) -> None:
        await waits("attempt")
        await stumbles("stumbled")

    @flow.action
    async def tell(self) -> None:
        await note("told")

    @flow.request(timeout=1000, default=settled)
    async def claim(self, id: str) -> None:
        await ask("clerk", id)
        await waits("claim")

    behaviour = flow.table(
        flow.on(begun).to(ready),
        flow.on(ordered, in_=ready).to(paying).do(pay),
        flow.on(claimed, in_=ready).to(claiming).do(claim),
        flow.on(told, in_=(ready, telling)).to(telling).do(tell),
        flow.on(tried, in_=ready).to(trying).do(attempt),
        flow.on(settled).to(paid),
        flow.any_of(lost, claim.timed_out).to(unclear),
    )


async def lost_in(opened: Open, event: Any, gate: str) -> tuple[Engine, Handle[Any]]:
    """A payout whose worker was lost while a step waited for that gate, and a worker that goes on with it."""
    first, store = await opened(work=True, workflows=[Payout.begun])
    handle = await first.start(Payout.begun)
    await handle.signal(event)
    await until(lambda: done[f"began {gate}"])
    await lose(first, store)
    gates[gate].set()
    second, _ = await opened(work=True, workflows=[Payout.begun])
    return second, second.process(handle.id)


async def test_an_action_that_runs_at_most_once_is_not_repeated_after_a_kill_and_a_person_sees_it(opened: Open) -> None:
    engine, handle = await lost_in(opened, Payout.ordered, "pay")
    row = await until_row(engine, handle.id, lambda row: row.status is Status.BROKEN)
    assert b"in Payout.pay: " in (row.error or b"")
    assert b"StepOutcomeUnknown" in (row.error or b"")
    assert (done["before"], done["began pay"], done["after"]) == (1, 1, 0)
    assert (await position(handle))["state"] == "ready"
    await handle.retry()
    assert await handle.result(LIMIT) == "paid", "once more, because a person has said so"
    assert (done["before"], done["began pay"], done["after"]) == (1, 2, 1)


async def test_what_nobody_knows_may_be_an_event_of_the_flow(opened: Open) -> None:
    _, handle = await lost_in(opened, Payout.tried, "attempt")
    assert await handle.result(LIMIT) == "unclear"
    assert (done["began attempt"], done["stumbled"]) == (1, 0)


async def test_a_step_of_such_a_state_is_not_retried_when_it_fails(opened: Open) -> None:
    gates["attempt"].set()
    engine, _ = await opened(work=True, workflows=[Payout.begun])
    handle = await engine.start(Payout.begun)
    await handle.signal(Payout.tried)
    row = await until_row(engine, handle.id, lambda row: row.status is Status.BROKEN)
    assert b"no luck" in (row.error or b"")
    assert done["stumbled"] == 1


async def test_a_request_of_such_a_state_that_may_have_been_sent_is_not_sent_again_and_can_be_answered(
    opened: Open,
) -> None:
    engine, handle = await lost_in(opened, Payout.claimed, "claim")
    await until_row(engine, handle.id, lambda row: row.owner is None and b'"claiming"' in (row.state or b""))
    (request,) = (await position(handle))["requests"]
    assert ("waits" in request["trouble"], request["sends"]) == (True, 1)
    await handle.signal(Payout.answer, await asked(handle, "claim"), "PAID")
    assert await handle.result(LIMIT) == "paid"
    assert (len(sent), done["began claim"]) == (1, 1)


async def test_without_the_flag_an_interrupted_send_goes_on_also_if_no_retry_is_left(opened: Open) -> None:
    class Notice(flow.Flow):
        waiting = flow.State()
        paid = flow.State(terminal=True)

        @flow.init
        def begun(self) -> None:
            pass

        @flow.event
        def settled(self) -> None:
            pass

        @flow.request(timeout=1000, retry=Retry.NONE, default=settled)
        async def claim(self, id: str) -> None:
            await waits(id)

        behaviour = flow.table(
            flow.on(begun).to(waiting).do(claim), flow.any_of(settled, claim.timed_out, in_=waiting).to(paid)
        )

    first, store = await opened(work=True, workflows=[Notice.begun])
    handle = await first.start(Notice.begun)
    id = f"{handle.id}/1/claim"
    await until(lambda: done[f"began {id}"])
    await lose(first, store)
    gates[id].set()
    second, _ = await opened(work=True, workflows=[Notice.begun])
    handle = second.process(handle.id)
    await until_row(second, handle.id, lambda row: row.owner is None and b'"waiting"' in (row.state or b""))
    assert (await position(handle))["requests"][0]["sends"] == 1, "it is the same send, with the same id"
    assert (done[f"began {id}"], done[id]) == (2, 1)


async def test_a_policy_says_at_most_once_for_a_state_or_an_action(opened: Open) -> None:
    class Errand(flow.Flow):
        going = flow.State()
        gone = flow.State(terminal=True)

        @flow.init
        def begun(self) -> None:
            pass

        @flow.event
        def went(self) -> None:
            pass

        @flow.action
        async def walk(self) -> flow.Happened:
            await waits("walk")
            return self.went()

        behaviour = flow.table(flow.on(begun).to(going).do(walk), flow.on(went, in_=going).to(gone))

    for key in ("Errand.going.*", "Errand.*.walk"):
        gates["walk"].clear()
        done.clear()
        options = WorkerOptions(policies={key: Policy(at_most_once=True)})
        first, store = await opened(work=True, workflows=[Errand.begun], options=options)
        handle = await first.start(Errand.begun)
        await until(lambda: done["began walk"])
        await lose(first, store)
        await first.close(0)
        gates["walk"].set()
        second, _ = await opened(work=True, workflows=[Errand.begun], options=options)
        await until_row(second, handle.id, lambda row: row.status is Status.BROKEN)
        assert done["began walk"] == 1, key
        await second.close(0)


async def test_no_policy_lets_run_twice_what_a_state_says_is_done_once(opened: Open) -> None:
    gates["attempt"].set()
    options = WorkerOptions(policies={"Payout.trying.stumbles": Policy(at_most_once=False, attempts=3, first=0)})
    engine, _ = await opened(work=True, workflows=[Payout.begun], options=options)
    handle = await engine.start(Payout.begun)
    await handle.signal(Payout.tried)
    await until_row(engine, handle.id, lambda row: row.status is Status.BROKEN)
    assert done["stumbled"] == 1


async def test_a_passivating_state_leaves_memory_at_once_and_any_input_loads_it_back(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[Payout.begun])
    assert engine.worker is not None
    scheduler, counters = engine.worker.scheduler, engine.telemetry.counters
    handle = await engine.start(Payout.begun)
    await until(lambda: len(scheduler.cache) == 1)
    for number in range(1, 6):
        assert await handle.call(Payout.told) == "telling"
        await until(lambda: not scheduler.instances)
        assert (len(scheduler.cache), done["told"]) == (0, number)
    loaded = counters["cache_misses"]
    assert loaded == 4, "the first came when the flow was in memory, each other one has loaded it"
    await handle.signal(Payout.settled)
    assert await handle.result(LIMIT) == "paid"
    assert counters["cache_misses"] == 5


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"at_most_once": 1}, "at_most_once=1. Give True or False"),
        ({"passivating": "yes"}, "passivating='yes'. Give True or False"),
        ({"passivating": True, "terminal": True}, "a flow that has ended leaves memory anyway"),
    ],
)
def test_a_flag_that_makes_no_sense_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        flow.State(**settings)


def test_a_request_that_is_sent_again_does_not_belong_into_a_state_whose_actions_run_once() -> None:
    with pytest.raises(DefinitionError, match=r"'nag' is sent again in state waiting, whose actions run at most once"):

        class Nagging(flow.Flow):
            waiting = flow.State(at_most_once=True)
            over = flow.State(terminal=True)

            @flow.init
            def begun(self) -> None:
                pass

            @flow.event
            def heard(self) -> None:
                pass

            @flow.request(timeout=10, retry=Retry(attempts=2), default=heard)
            async def nag(self, id: str) -> None:
                pass

            behaviour = flow.table(
                flow.on(begun).to(waiting).do(nag), flow.any_of(heard, nag.timed_out, in_=waiting).to(over)
            )
