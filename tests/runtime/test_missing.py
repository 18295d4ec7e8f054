"""What cannot be replayed is parked; where a rule for its kind says so, it begins again by itself, a few times."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from msgspec import json

from perdure import settings
from perdure.authoring.step import step
from perdure.authoring.workflow import Workflow, receive, workflow
from perdure.engine import Engine
from perdure.errors import BadRecord, DefinitionError, ProcessBroken
from perdure.kernel.event import EventType
from perdure.kernel.run import Opening
from perdure.runtime.options import WorkerOptions
from tests.runtime.conftest import LIMIT, Open, until, until_row
from tests.runtime.test_damaged_rows import damage

TWICE = WorkerOptions(missing={"bill": {"restart": 2}})
LOST = "number: 7"
"""The first event of a history has another number: it is missing at its place."""
charged: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    charged.clear()


@step
async def charge(what: str) -> str:
    charged[what] += 1
    return what


def bill(first: str = "bread", version: str = "") -> Workflow[[], str]:
    """A workflow that charges, waits for a signal, and charges again; another ``first`` is other code."""

    @workflow(name="bill", version=version)
    async def made() -> str:
        done = await charge(first)
        return done + await receive("go", str)

    return made


async def half_way(opened: Open, code: Workflow[[], str]) -> str:
    """A process that has charged once and waits, and no worker."""
    engine, _ = await opened(work=True, workflows=[code])
    handle = await engine.start(code)
    await until_row(engine, handle.id, lambda row: row.owner is None and row.awaiting is not None)
    await engine.close()
    return handle.id


async def openings(engine: Engine, id: str) -> list[Opening]:
    """What opened its present run, if that is not the first."""
    history = await engine.process(id).history()
    return [json.decode(one.payload or b"", type=Opening) for one in history if one.type is EventType.RUN_OPENED]


async def test_what_lost_a_record_begins_again_once_and_says_that_it_was_automatic(
    opened: Open, store_url: str
) -> None:
    id = await half_way(opened, bill())
    assert await damage(store_url, id, "event", LOST)
    engine, _ = await opened(work=True, workflows=[bill()], options=TWICE)
    await engine.process(id).signal("go", " and butter")
    assert await engine.process(id).result(LIMIT) == "bread and butter"
    [opening] = await openings(engine, id)
    assert (opening.done, opening.from_run, opening.automatic) == ("restarted", 1, 1)
    assert (opening.sender["who"], opening.sender["origin"]) == ("perdure", "automatic")
    assert "DamagedRecord" in opening.sender["why"] and "is not whole" in opening.sender["why"]
    assert charged["bread"] == 2 and engine.metrics()["processes_begun_again"] == 1


async def test_without_a_rule_for_its_kind_it_is_parked(opened: Open, store_url: str) -> None:
    id = await half_way(opened, bill())
    assert await damage(store_url, id, "event", LOST)
    other = WorkerOptions(missing={"order": {"restart": 2}})
    engine, _ = await opened(work=True, workflows=[bill()], options=other)
    await engine.process(id).signal("go", "on")
    with pytest.raises(ProcessBroken, match="DamagedRecord"):
        await engine.process(id).result(LIMIT)
    assert charged["bread"] == 1 and engine.metrics()["processes_begun_again"] == 0


async def test_code_that_does_not_fit_is_begun_again_as_often_in_a_row_as_the_rule_says_then_it_is_parked(
    opened: Open,
) -> None:
    id = await half_way(opened, bill("1"))
    for many, code in ((1, "2"), (2, "3")):
        engine, _ = await opened(work=True, workflows=[bill(code)], options=TWICE)
        await engine.process(id).signal("poke")
        await until(lambda: charged[code])  # noqa: B023
        await until_row(engine, id, lambda row: row.owner is None and row.awaiting is not None)
        [opening] = await openings(engine, id)
        assert opening.automatic == many and "HistoryMisfit" in opening.sender["why"]
        await engine.close()
    engine, _ = await opened(work=True, workflows=[bill("4")], options=TWICE)
    await engine.process(id).signal("go", "on")
    with pytest.raises(ProcessBroken, match="HistoryMisfit"):
        await engine.process(id).result(LIMIT)
    assert charged["4"] == 0
    await engine.process(id).restart(who="Ann")
    assert await engine.process(id).result(LIMIT) == "4on"
    assert [one.automatic for one in await openings(engine, id)] == [0], "a person's restart begins the count anew"


async def test_if_the_database_refuses_the_new_run_it_is_parked(opened: Open, store_url: str) -> None:
    id = await half_way(opened, bill("1"))
    engine, store = await opened(work=True, workflows=[bill("2")], options=TWICE)
    refused = []

    async def refuse(name: str, argument: object) -> None:
        if name == "commit" and any(one.after.run == 2 for one in argument):
            refused.append(name)
            raise BadRecord("this run is not wanted")

    store.before = refuse
    await engine.process(id).signal("go", "on")
    with pytest.raises(ProcessBroken, match="HistoryMisfit"):
        await engine.process(id).result(LIMIT)
    assert refused and charged["2"] == 0


# -- settings ------------------------------------------------------------------------------------------------------


def test_rules_are_set_by_the_program_and_the_file_counts_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "perdure.toml").write_text('[missing.bill]\nrestart = 5\n[missing."@bank"]\nrestart = 1\n')
    assert {kind: rule.again for kind, rule in settings.missing(TWICE.missing).items()} == {"bill": 5, "@bank": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        "missing = 5", "[missing]\nbill = 2", "[missing.bill]\nrestart = 0", "[missing.bill]\nrestart = true",
        "[missing.bill]\nrestart = 101", "[missing.bill]\nversions = true", "[missing.bill]\nrestart = 1\nversions = 1",
        "[missing.bill]\nrestart = 1\nagain = 2",
    ],
)  # fmt: skip
def test_a_rule_that_makes_no_sense_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "perdure.toml").write_text(wrong)
    with pytest.raises(DefinitionError, match=r"restart = 2|\[missing.order\]"):
        settings.missing()
