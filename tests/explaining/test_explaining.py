"""Every cause has a scenario that is explained by it, on both stores; what is proposed can be typed."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from perdure import Engine
from perdure.cli.app import app
from perdure.client.explaining.diagnosis import GOES_ON, MEANINGS, Diagnosis
from perdure.client.explaining.explanation import Explanation
from perdure.kernel.diagnosis import NextMover
from perdure.testing.conformance import Ground, Trial
from tests.explaining.scenarios import SCENARIOS, TRIALS, Place
from tests.runtime.conftest import Open
from tests.store.ground_postgres import emptied
from tests.store.ground_sqlite import SqliteGround


@pytest.fixture(params=["sqlite", "postgres"])
async def trial(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Trial]:
    """A store of each kind alone, whose time the test moves."""
    if request.param == "sqlite":
        ground: Ground = SqliteGround(tmp_path / "perdure.db")
        async with _trial(ground) as made:
            yield made
        return
    async with emptied(request.getfixturevalue("migrated")) as ground, _trial(ground) as made:
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
        app.parse_args(words, print_error=False, exit_on_error=False)
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
