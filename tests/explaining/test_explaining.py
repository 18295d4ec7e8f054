"""Every cause has a scenario that is explained by it, on both stores; what is proposed can be typed."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from perdure import Engine, Search, Status, WorkerOptions, Workflow
from perdure.cli.app import whole_app
from perdure.client.explaining.causes import ALIKE
from perdure.client.explaining.diagnosis import GOES_ON, MEANINGS, Diagnosis
from perdure.client.explaining.explanation import Explanation
from perdure.errors import IllegalMove
from perdure.kernel.diagnosis import NextMover
from perdure.kernel.event import EventType
from perdure.testing.conformance import Ground, Trial
from tests.checks.plants import sow
from tests.explaining import shop
from tests.explaining.scenarios import SCENARIOS, Place, at_rest
from tests.explaining.trials import TRIALS
from tests.runtime.conftest import A_MOMENT, LIMIT, Open, lose, until, until_row
from tests.store.ground_postgres import emptied
from tests.store.ground_sqlite import SqliteGround

DAMAGED = (
    "UPDATE event SET payload = :list WHERE process = :id AND type = 2 AND payload IS NOT NULL; "
    "UPDATE message SET payload = :list WHERE process = :id"
)
"""What a step has failed by is no failure any more, in the history or in the inbox."""


@pytest.fixture(params=["sqlite", "postgres"])
async def trial(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Trial]:
    """A store of each kind alone, whose time the test moves."""
    if request.param == "sqlite":
        ground: Ground = SqliteGround(tmp_path / "perdure.db")
        async with _trial(ground) as made:
            yield made
        return
    url, kept = request.getfixturevalue("migrated"), request.getfixturevalue("kept_sessions")
    async with emptied(url, kept=kept) as ground, _trial(ground) as made:
        yield made


@asynccontextmanager
async def _trial(ground: Ground) -> AsyncIterator[Trial]:
    made = Trial(ground, ground.store())
    await made.store.open()
    yield made
    await made.store.close()


@pytest.fixture
def place(opened: Open, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Engines on a database of each kind."""
    return Place(opened, monkeypatch.setattr)


async def explained(engine: Engine, id: str, cause: Diagnosis) -> Explanation:
    """Explain it, and check what every explanation promises."""
    before = await engine.row(id)
    found = await engine.explain(id)
    assert found.cause is cause, f"{found.cause}: {found.why}; {found.evidence}"
    assert found.stands_still is (cause not in GOES_ON)
    assert found.why and found.next
    assert (found.mover is NextMover.NOBODY) is (cause is Diagnosis.ENDED)
    assert not found.stands_still or found.proposals, "what stands still can be mended, or at least looked at"
    for proposal in found.proposals:
        program, *words = shlex.split(proposal.command)
        assert program == "perdure"
        whole_app().parse_args(words, print_error=False, exit_on_error=False)
        assert not proposal.verb or proposal.preview, "a command to the process itself was tried"
    after = await engine.row(id)
    assert (after.version, after.status) == (before.version, before.status), "to explain changes nothing"
    return found


@pytest.mark.parametrize("cause", SCENARIOS, ids=str)
async def test_each_cause_is_named_where_it_is_the_cause(place: Place, cause: Diagnosis) -> None:
    engine, id = await SCENARIOS[cause](place)
    await explained(engine, id, cause)


@pytest.mark.parametrize("cause", TRIALS, ids=str)
async def test_each_cause_is_named_on_a_store_whose_time_is_moved(trial: Trial, cause: Diagnosis) -> None:
    engine, id = await TRIALS[cause](trial)
    await explained(engine, id, cause)


def test_no_cause_is_without_a_scenario_and_a_meaning() -> None:
    assert set(SCENARIOS) | set(TRIALS) == set(Diagnosis) == set(MEANINGS)
    assert not set(SCENARIOS) & set(TRIALS)


async def test_the_cause_of_a_grandchild_that_stands_still_is_named_with_its_grandparent(place: Place) -> None:
    engine, _ = await place.worker()
    handle = await engine.start(shop.grandparent, "forgets")
    await until_rests(engine, "forgetful")
    await until_rests(engine, "family")
    await at_rest(engine, handle.id, "child family")
    found = await engine.explain(handle.id)
    assert found.cause is Diagnosis.WAITS_FOR_CHILD and found.stands_still
    assert found.child is not None and found.child.cause is Diagnosis.WAITS_FOR_CHILD
    assert found.child.child is not None and found.child.child.cause is Diagnosis.WAITS_FOR_NOTHING
    assert any("1 children and queued steps" in line for line in found.evidence)


async def test_it_is_told_how_often_the_step_was_tried_that_has_ended_a_process(place: Place) -> None:
    engine, _ = await place.worker()
    times = {shop.refused: "once", shop.declined: "3 times", shop.declined_at_the_till: "2 times"}
    steps = {shop.refused: "refuse", shop.declined: "decline", shop.declined_at_the_till: "decline_at_the_till"}
    for flow, tried in times.items():
        handle = await engine.start(flow, "A")
        await until_row(engine, handle.id, lambda row: row.status is Status.FAILED)
        found = await explained(engine, handle.id, Diagnosis.RETRIES_SPENT)
        assert found.evidence[0] == f"step {steps[flow]} was tried {tried}, and no attempt is left"


@pytest.mark.parametrize("flow", [shop.declined, shop.declined_at_the_till])
async def test_attempts_of_which_nothing_can_be_read_are_not_counted(
    place: Place, store_url: str, flow: Workflow[[str], None]
) -> None:
    engine, _ = await place.worker()
    handle = await engine.start(flow, "A")
    await until_row(engine, handle.id, lambda row: row.status is Status.FAILED)
    await sow(store_url, handle.id, DAMAGED)
    [line] = (await explained(engine, handle.id, Diagnosis.RETRIES_SPENT)).evidence
    assert line == f"step {flow.name.replace('declined', 'decline')} has failed, and no attempt is left"


async def test_a_command_that_would_be_refused_is_proposed_with_the_reason(place: Place) -> None:
    engine, _ = await place.worker()
    handle = await engine.start(shop.reserved, "A")
    await until_row(engine, handle.id, lambda row: row.status is Status.FAILED)
    [retry] = (await explained(engine, handle.id, Diagnosis.RETRIES_SPENT)).proposals
    assert (retry.verb, retry.accepted) == ("retry", False)
    assert retry.preview.startswith("it would be refused: cannot retry what was compensated: reserve:1 would count")
    with pytest.raises(IllegalMove, match="cannot retry what was compensated"):
        await handle.retry()


async def until_rests(engine: Engine, kind: str) -> None:
    """Wait until the process of this kind waits for something."""
    while not [one for one in await engine.store.search(Search(kind=kind)) if one.owner is None and one.awaiting]:
        await asyncio.sleep(A_MOMENT)


async def test_many_that_wait_for_the_same_step_say_that_what_it_calls_is_down(place: Place) -> None:
    engine, _ = await place.worker()
    handles = [await engine.start(shop.faltering, f"{number}") for number in range(ALIKE)]
    for handle in handles:
        await at_rest(engine, handle.id, "step falter")
    found = await engine.explain(handles[0].id)
    assert found.cause is Diagnosis.DEPENDENCY_DOWN
    assert any("5 of 5 such processes" in line for line in found.evidence)
    assert found.mover is NextMover.TIMER and found.next_at is not None


async def test_a_process_of_a_held_kind_is_moved_by_the_outage_and_it_is_told_since_when_and_until_when(
    place: Place,
) -> None:
    rules = {"refused": {"failures": 1, "open_for": 3600.0}}
    engine, _ = await place.worker(options=WorkerOptions(outages=rules))
    assert engine.worker is not None
    failed = await engine.start(shop.refused, "A")
    await until_row(engine, failed.id, lambda row: row.status is Status.FAILED)
    engine.worker.outages.loop.wake()
    await until(lambda: engine.worker is not None and engine.worker.outages.holds("refused"))
    waiting = await engine.start(shop.refused, "B")
    [outage] = await engine.outages.list()
    found = await explained(engine, waiting.id, Diagnosis.DEPENDENCY_DOWN)
    assert found.mover is NextMover.OUTAGE and found.next.startswith("a canary is let through then")
    assert found.next_at == outage.until and "refused is held: 1 processes have failed alike" in found.why
    assert f"they have failed with fingerprint {outage.fingerprint}" in found.evidence
    assert "perdure outage end refused" in [one.command for one in found.proposals]
    status = await waiting.status()
    assert (status.mover, status.until) == (NextMover.OUTAGE, outage.until) and status.since == found.since
    [line] = [one for one in await engine.board() if one.mover is NextMover.OUTAGE]
    assert (line.kind, line.count, line.since) == ("refused", 1, status.since)
    assert [one.id for one in await engine.list(where="mover = outage")] == [waiting.id]
    await engine.outages.begin("refused", who="ana", why="the bank has told us")
    found = await explained(engine, waiting.id, Diagnosis.DEPENDENCY_DOWN)
    assert found.next == "nothing, until a person ends the outage" and found.next_at is None
    assert found.why == "it is due, and refused is held by ana: the bank has told us"


async def until_told(engine: Engine, id: str) -> None:
    """Wait until it is written which step begins."""
    async with asyncio.timeout(LIMIT):
        while not [one for one in await engine.process(id).history() if one.type is EventType.ATTEMPT_BEGUN]:
            await asyncio.sleep(A_MOMENT)


async def test_it_is_known_which_step_ran_at_each_death_of_a_suspects_worker(place: Place) -> None:
    engine, id = await SCENARIOS[Diagnosis.CRASHES_ITS_WORKER](place)
    row = await engine.row(id)
    suspect, store = await place.worker(alone=True)
    await until_row(suspect, id, lambda row: row.owner == suspect.worker.incarnation.id)  # type: ignore[union-attr]
    await until_told(engine, id)
    await lose(suspect, store)
    await place.opened(work=True, workflows=[shop.sleeping])
    await until_row(engine, id, lambda now: now.deaths + now.alone_deaths > row.deaths + row.alone_deaths)
    found = await engine.explain(id)
    assert found.cause is Diagnosis.CRASHES_ITS_WORKER
    died = [line for line in found.evidence if " died at " in line]
    assert len(died) == 3 and "step wait_at_gate:" in died[-1] and "ran then" in died[-1]
    assert "it had recorded no step by then" in died[0]


async def test_a_process_that_a_running_operation_comes_to_is_moved_by_the_operation(place: Place) -> None:
    engine, id = await SCENARIOS[Diagnosis.RETRIES_SPENT](place)
    client = await place.client()
    await (await place.worker())[0].close(0)
    assert (await client.explain(id)).mover is NextMover.PERSON
    operation = await engine.operations.start("retry", "kind = refused", canary=1, watch=3600)
    await until_row(engine, operation.id, lambda row: b"watching the canary" in (row.state or b""))
    other = await engine.start(shop.refused, "B")
    await until_row(engine, other.id, lambda row: row.status is Status.FAILED)
    assert (await client.explain(other.id)).mover is NextMover.PERSON, "it has failed since the operation began"
