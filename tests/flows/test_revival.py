"""What goes on by itself when a worker was lost, or a flow has left memory; when, and what is never done again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine, Handle, Policy, Retry, Status, WorkerOptions, flow, machine, step, testing, workflow
from perdure.errors import DefinitionError
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Process
from perdure.kernel.retry import decode_attempt
from tests.flows.transfer import Transfer, ask, done, gates, note, position, sent, waits
from tests.runtime.conftest import LIMIT, Open, lose, until, until_row


class Rescue(flow.Flow, revival_delay=0.2):
    """Its states differ in what becomes of an action whose worker is lost."""

    ready = flow.State()
    soon = flow.State()
    never = flow.State(revival_delay=0)
    outrun = flow.State(timeout=0.5, revival_delay=900)
    asking = flow.State(revival_delay=900)
    over = flow.State(terminal=True)
    late = flow.State(terminal=True)

    @flow.init
    def begun(self) -> None:
        pass

    @flow.event
    def hurried(self) -> None:
        pass

    @flow.event
    def stopped(self) -> None:
        pass

    @flow.event
    def raced(self) -> None:
        pass

    @flow.event
    def asked(self) -> None:
        pass

    @flow.event
    def settled(self) -> None:
        pass

    @flow.action
    async def work(self) -> flow.Happened:
        await note("before")
        await waits("work")
        return self.settled()

    @flow.request(timeout=2000, retry=Retry(attempts=3, first=1, factor=1, jitter=0), default=settled)
    async def claim(self, id: str) -> None:
        await ask("clerk", id)
        await waits("claim")

    behaviour = flow.table(
        flow.on(begun).to(ready),
        flow.on(hurried, in_=ready).to(soon).do(work),
        flow.on(stopped, in_=ready).to(never).do(work),
        flow.on(raced, in_=ready).to(outrun).do(work),
        flow.on(asked, in_=ready).to(asking).do(claim),
        flow.on(settled).to(over),
        flow.any_of(outrun.timed_out, claim.timed_out).to(late),
    )


async def lost_in(opened: Open, event: Any, gate: str = "work", **policies: Policy) -> tuple[Engine, Handle[Any]]:
    """A rescue whose worker was lost while a step waited for that gate, and a worker that has it now."""
    options = WorkerOptions(policies=policies)
    first, store = await opened(work=True, workflows=[Rescue.begun], options=options)
    handle = await first.start(Rescue.begun)
    await handle.signal(event)
    await until(lambda: done[f"began {gate}"])
    await lose(first, store)
    gates[gate].set()
    second, _ = await opened(work=True, workflows=[Rescue.begun], options=options)
    return second, second.process(handle.id)


async def test_an_interrupted_action_goes_on_after_the_delay_and_not_before(opened: Open) -> None:
    _, handle = await lost_in(opened, Rescue.hurried)
    assert await handle.result(LIMIT) == "over"
    assert (done["before"], done["began work"], done["work"]) == (1, 2, 1)
    history = await handle.history()
    lost = next(event.at for event in history if event.type is EventType.REVIVED)
    finished = next(event.at for event in history if event.type is EventType.STEP_COMPLETED and event.name == "waits")
    assert finished - lost >= 200_000


async def test_with_a_delay_of_zero_it_stays_says_so_and_goes_on_when_a_person_says_so(opened: Open) -> None:
    engine, handle = await lost_in(opened, Rescue.stopped)
    row = await until_row(engine, handle.id, lambda row: row.status is Status.BROKEN)
    assert b"Interrupted" in (row.error or b"")
    assert b"was under way when its worker was lost, and its revival is off" in (row.error or b"")
    assert done["began work"] == 1
    await handle.retry()
    assert await handle.result(LIMIT) == "over"
    assert (done["before"], done["began work"]) == (1, 2)


async def test_what_has_left_its_state_before_the_delay_is_over_is_not_revived(opened: Open) -> None:
    _, handle = await lost_in(opened, Rescue.raced)
    assert await handle.result(LIMIT) == "late"
    assert (done["began work"], done["work"]) == (1, 0)


@pytest.mark.parametrize("key", ["Rescue.never.*", "Rescue.*.work", "Rescue.never.waits"])
async def test_a_policy_sets_the_delay_of_a_state_an_action_or_a_step(opened: Open, key: str) -> None:
    _, handle = await lost_in(opened, Rescue.stopped, **{key: Policy(revival_delay=0.001)})
    assert await handle.result(LIMIT) == "over"
    assert done["began work"] == 2


@workflow
async def errand() -> str:
    """A workflow that is no flow."""
    return await waits("errand")


async def test_a_policy_keeps_a_step_of_any_workflow_from_going_on_by_itself(opened: Open) -> None:
    options = WorkerOptions(policies={"errand.*.waits": Policy(revival_delay=0)})
    first, store = await opened(work=True, workflows=[errand], options=options)
    handle = await first.start(errand)
    await until(lambda: done["began errand"])
    await lose(first, store)
    gates["errand"].set()
    second, _ = await opened(work=True, workflows=[errand], options=options)
    await until_row(second, handle.id, lambda row: row.status is Status.BROKEN)
    handle = second.process(handle.id, str)
    await handle.retry()
    assert await handle.result(LIMIT) == "errand"
    assert done["began errand"] == 2


@step(retry=Retry(attempts=3, first=600, cap=600, jitter=0))
async def send() -> str:
    done["sent"] += 1
    raise ConnectionError("busy")


@workflow
async def letter(*, together: bool) -> str:
    """Sends something once it has been written, or while something else is under way, and then sends it again later."""
    if together:
        return "".join(await asyncio.gather(waits("letter"), send()))
    await waits("letter")
    return await send()


def due_of_retry(row: Process, events: list[Event]) -> bool:
    [failed] = [event for event in events if event.type is EventType.ATTEMPT_FAILED]
    return row.due_at == decode_attempt(failed.payload or b"").retry_at


@pytest.mark.parametrize("delay", [0, 5000])
async def test_a_loss_before_a_step_was_asked_for_does_not_keep_it_from_its_retry(opened: Open, delay: float) -> None:
    options = WorkerOptions(policies={"letter.*.send": Policy(revival_delay=delay)})
    first, store = await opened(work=True, workflows=[letter], options=options)
    handle = await first.start(letter, together=False)
    await until(lambda: done["began letter"])
    await lose(first, store)
    gates["letter"].set()
    second, _ = await opened(work=True, workflows=[letter], options=options)
    await until_row(second, handle.id, lambda row: done["sent"] and row.owner is None)
    await second.close(0)
    third, _ = await opened(work=True, workflows=[letter], options=options)
    await third.process(handle.id).signal("anything")
    row = await until_row(third, handle.id, lambda row: row.seen == 1 or row.status is not Status.RUNNING)
    row = await until_row(third, handle.id, lambda row: row.owner is None)
    assert (row.status, row.error, done["sent"]) == (Status.RUNNING, None, 1)
    assert due_of_retry(row, await third.process(handle.id).history()), "its ordinary retry is not put off"


class Postman(machine.Machine):
    @machine.init
    def hired(self) -> None:
        pass

    @machine.signal
    async def fetch(self) -> None:
        await waits("letter")

    @machine.signal
    async def bring(self) -> None:
        await send()

    @machine.repair
    async def bring_all(self) -> None:
        await send()


@pytest.mark.parametrize("delay", [0, 5000])
async def test_a_loss_in_an_earlier_method_does_not_keep_a_step_of_a_machine_from_its_retry(
    opened: Open, delay: float
) -> None:
    options = WorkerOptions(policies={"Postman.*.send": Policy(revival_delay=delay)})
    first, store = await opened(work=True, workflows=[Postman.hired], options=options)
    handle = await first.start(Postman.hired)
    await handle.signal(Postman.fetch)
    await handle.signal(Postman.bring)
    await until(lambda: done["began letter"])
    await lose(first, store)
    gates["letter"].set()
    second, _ = await opened(work=True, workflows=[Postman.hired], options=options)
    await until_row(second, handle.id, lambda row: done["sent"] and row.owner is None)
    await second.close(0)
    third, _ = await opened(work=True, workflows=[Postman.hired], options=options)
    await third.process(handle.id).signal(Postman.fetch)
    await until_row(third, handle.id, lambda row: row.seen == 3 or row.status is not Status.RUNNING)
    row = await until_row(third, handle.id, lambda row: row.owner is None)
    assert (row.status, row.error, done["sent"]) == (Status.RUNNING, None, 1)
    assert due_of_retry(row, await third.process(handle.id).history()), "its ordinary retry is not put off"


async def test_a_machine_that_a_person_repairs_after_a_loss_runs_the_step_of_the_repair(opened: Open) -> None:
    options = WorkerOptions(policies={"Postman.*.*": Policy(revival_delay=0)})
    first, store = await opened(work=True, workflows=[Postman.hired], options=options)
    handle = await first.start(Postman.hired)
    await handle.signal(Postman.fetch)
    await until(lambda: done["began letter"])
    await lose(first, store)
    second, _ = await opened(work=True, workflows=[Postman.hired], options=options)
    await until_row(second, handle.id, lambda row: row.status is Status.BROKEN)
    await second.process(handle.id).repair(Postman.bring_all)
    row = await until_row(second, handle.id, lambda row: row.events > 4 and row.owner is None)
    assert (row.status, row.error, done["sent"]) == (Status.RUNNING, None, 1)


@pytest.mark.parametrize("delay", [0, 5000])
async def test_a_loss_while_a_step_waits_for_its_retry_changes_nothing_of_it(opened: Open, delay: float) -> None:
    options = WorkerOptions(policies={"letter.*.send": Policy(revival_delay=delay)})
    first, store = await opened(work=True, workflows=[letter], options=options)
    handle = await first.start(letter, together=True)
    await until_row(first, handle.id, lambda row: done["began letter"] and done["sent"] and row.events)
    await lose(first, store)
    gates["letter"].set()
    second, _ = await opened(work=True, workflows=[letter], options=options)
    await until_row(second, handle.id, lambda row: row.owner is None and done["letter"])
    row = await second.row(handle.id)
    assert (row.status, row.error, done["began letter"], done["sent"]) == (Status.RUNNING, None, 2, 1)
    assert due_of_retry(row, await second.process(handle.id).history()), "its ordinary retry is not put off"


async def test_a_revived_request_goes_on_with_the_sends_that_it_has_left(opened: Open) -> None:
    """One of two retries is used before the kill: one is left after it."""
    gates["claim"].set()
    delays = {"Rescue.asking.*": Policy(revival_delay=0.001)}
    first, store = await opened(work=True, workflows=[Rescue.begun], options=WorkerOptions(policies=delays))
    handle = await first.start(Rescue.begun)
    await handle.signal(Rescue.asked)
    await until(lambda: done["claim"] == 1)
    gates["claim"].clear()
    await until(lambda: done["began claim"] == 2)
    await lose(first, store)
    gates["claim"].set()
    second, _ = await opened(work=True, workflows=[Rescue.begun], options=WorkerOptions(policies=delays))
    row = await until_row(second, handle.id, lambda row: row.owner is None and b'"sends":3' in (row.state or b""))
    assert b'"again":null' in row.state or b'"again"' not in row.state
    assert len({id for _, id in sent}) == 1
    assert done["claim"] == 3, "the first, the second that was interrupted and sent once more, and the third"


async def test_a_flow_that_is_loaded_for_the_first_time_does_its_actions_once(opened: Open) -> None:
    client, _ = await opened()
    handle = await client.start(Transfer.begun, "Ann")
    engine, _ = await opened(work=True, workflows=[Transfer.begun])
    await until_row(engine, handle.id, lambda row: row.owner is None and b'"reserving"' in (row.state or b""))
    assert len(sent) == 1


async def test_a_flow_that_waits_has_nothing_to_revive_when_its_worker_is_lost_and_keeps_its_times(
    tmp_path: Path,
) -> None:
    """No worker holds it, so none can lose it: its timetable is in its row, and a wake changes nothing of it."""
    async with testing.engine(folder=tmp_path) as engine:
        handle = await engine.start(Transfer.begun, "Ann")
        await engine.sleep(4)
        before = await position(handle)
        later = engine.now()
    assert (len(sent), (request := before["requests"][0])["sends"]) == (2, 2)
    async with testing.engine(folder=tmp_path, begins=later) as engine:
        handle = engine.process(handle.id)
        assert await handle.call(Transfer.acknowledged) == "waiting"
        after = await position(handle)
        assert (len(sent), after["requests"][0]) == (2, request), "a wake sends nothing, and spends no retry"
        history = await handle.history()
        assert not [event for event in history if event.type is EventType.REVIVED]


async def test_flows_that_rest_in_their_first_state_or_have_ended_cost_a_new_worker_no_action(opened: Open) -> None:
    first, store = await opened(work=True, workflows=[Rescue.begun])
    handles = [await first.start(Rescue.begun) for _ in range(30)]
    for handle in handles[:15]:
        gates["work"].set()
        await handle.signal(Rescue.hurried)
        await handle.result(LIMIT)
    await lose(first, store)
    second, _ = await opened(work=True, workflows=[Rescue.begun])
    handle = await second.start(Rescue.begun)
    await handle.signal(Rescue.hurried)
    assert await handle.result(LIMIT) == "over"
    assert (done["before"], done["began work"], second.telemetry.counters["takeovers"]) == (16, 16, 0)


@pytest.mark.parametrize("delay", [-1, "soon", True, float("inf")])
def test_a_delay_that_makes_no_sense_is_refused(delay: Any) -> None:
    with pytest.raises(DefinitionError, match="revival_delay"):
        flow.State(revival_delay=delay)
    with pytest.raises(DefinitionError, match="revival_delay"):
        Policy(revival_delay=delay)
    assert Policy(revival_delay="none").given == {"revival_delay": None}  # type: ignore[arg-type]
