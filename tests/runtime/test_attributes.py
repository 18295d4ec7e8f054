"""Attributes set from the process, on both stores: found at once after the commit, told once, kept over its runs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import json

from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import InvalidKey, PayloadError, PayloadTooLarge, ProcessBroken, ProcessFailed, WorkflowMisuse
from perdure.kernel.event import EventType
from perdure.kernel.retry import Retry
from perdure.store.base import Search
from perdure.turns.publication import set_attributes
from perdure.turns.renewal import continue_as_new
from tests.runtime.conftest import LIMIT, Open, until_row

failing: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    failing.clear()


@step(retry=Retry.NONE)
async def act(name: str) -> str:
    if name in failing:
        failing.remove(name)
        raise ConnectionError(name)
    return name


@workflow
async def stages() -> None:
    set_attributes(stage="begun", tries=1)
    await act("first")
    set_attributes({"stage": "half", "what is it": True})
    await receive("on")
    await act("second")
    set_attributes(stage="done", tries=None)


@workflow
async def rounds(left: int) -> None:
    set_attributes(left=left)
    await act("round")
    set_attributes({f"round {left}": True})
    if left > 1:
        continue_as_new(left - 1)


@workflow
async def steady(times: int) -> None:
    for _ in range(times):
        set_attributes(stage="always")
        await act("step")


FLOWS = [stages, rounds, steady]


async def found(engine: Engine, **attributes: Any) -> list[str]:
    search = Search(attributes=tuple((name, json.encode(value).decode()) for name, value in attributes.items()))
    return [view.id for view in await engine.list(search)]


async def told(engine: Engine, handle: Handle[Any], run: int | None = None) -> list[Any]:
    events = await engine.process(handle.id).history(run)
    return [json.decode(event.payload or b"") for event in events if event.type is EventType.ATTRIBUTES_SET]


async def attributes(engine: Engine, handle: Handle[Any]) -> Any:
    return (await engine.process(handle.id).status()).attributes


async def test_a_search_finds_a_process_by_what_it_sets_and_the_others_stay(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(stages.options(attributes={"customer": "Ann", "tries": 0}))
    await until_row(engine, handle.id, lambda row: row.awaiting == "signal on")
    assert await attributes(engine, handle) == {"customer": "Ann", "stage": "half", "tries": 1, "what is it": True}
    assert await found(engine, stage="half", customer="Ann") == [handle.id]
    assert await found(engine, stage="begun") == []
    await handle.signal("on")
    await handle.result(LIMIT)
    assert await attributes(engine, handle) == {"customer": "Ann", "stage": "done", "what is it": True}
    assert await told(engine, handle) == [
        {"stage": "begun", "tries": 1},
        {"stage": "half", "what is it": True},
        {"stage": "done", "tries": None},
    ]
    written = [commit for name, commits in store.calls if name == "commit" for commit in commits]
    assert sum(commit.attributes_set for commit in written) == 2  # the first turn's went in with the start


async def test_a_replay_sets_nothing_again(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(stages)
    await until_row(engine, handle.id, lambda row: row.awaiting == "signal on" and row.owner is None)
    await engine.close(0)
    other, _ = await opened(work=True, workflows=FLOWS)
    await other.process(handle.id).signal("on")
    await other.process(handle.id).result(timeout=LIMIT)
    assert [list(one) for one in await told(other, handle)] == [
        ["stage", "tries"], ["stage", "what is it"], ["stage", "tries"]
    ]  # fmt: skip
    assert await found(other, stage="done") == [handle.id]


async def test_what_is_set_as_it_was_is_neither_written_nor_told(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(steady, 5)
    await handle.result(LIMIT)
    assert await told(engine, handle) == [{"stage": "always"}]
    again = await engine.start(steady.options(attributes={"stage": "always"}), 5)
    await again.result(LIMIT)
    assert await told(engine, again) == []
    assert not any(commit.attributes_set for name, commits in store.calls if name == "commit" for commit in commits)


async def test_attributes_stay_over_continuing_as_new_and_a_restart(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(rounds, 2)
    await handle.result(LIMIT)
    whole = {"left": 1, "round 1": True, "round 2": True}
    assert await attributes(engine, handle) == whole
    await handle.restart(why="once more")
    await engine.process(handle.id).result(timeout=LIMIT)
    assert await attributes(engine, handle) == whole
    assert await told(engine, handle, 3) == []


async def test_rule_21_a_retry_sets_what_the_code_says_where_it_goes_on(opened: Open) -> None:
    failing.append("second")
    engine, _ = await opened(work=True, workflows=[failed])
    handle = await engine.start(failed)
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    assert await attributes(engine, handle) == {"stage": "failed", "seen": True}
    await handle.retry(why="it works again")
    await engine.process(handle.id).result(timeout=LIMIT)
    assert await attributes(engine, handle) == {"stage": "second", "seen": True}
    # The first two were kept from the run before; the third one makes good what was set after them.
    assert await told(engine, handle, 2) == [{"stage": "first"}, {"stage": "second"}, {"stage": "second"}]


@workflow
async def failed() -> None:
    set_attributes(stage="first")
    await act("first")
    set_attributes(stage="second")
    try:
        await act("second")
    except Exception:
        set_attributes(stage="failed", seen=True)
        raise


@workflow
async def unfit(given: dict[str, Any]) -> str:
    try:
        set_attributes(given)
    except (PayloadError, InvalidKey) as error:
        return type(error).__name__
    return "set"


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        ({}, "set"),
        ({"a": [1]}, "PayloadError"),
        ({"": 1}, "InvalidKey"),
        ({"a": "x" * 2**16}, "PayloadTooLarge"),
        ({"a": 2**63}, "PayloadError"),
        ({"a": None}, "set"),
    ],
    ids=["nothing", "list", "no name", "large", "number", "away"],
)
async def test_the_limits_are_those_of_a_start(opened: Open, given: dict[str, Any], outcome: str) -> None:
    engine, _ = await opened(work=True, workflows=[unfit])
    handle = await engine.start(unfit, given)
    assert await handle.result(LIMIT) == outcome


async def test_more_than_fits_with_what_was_there_before_is_for_a_person(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[unfit])
    handle = await engine.start(unfit.options(attributes={"b": "y" * 2**15}), {"a": "x" * 2**15})
    with pytest.raises(ProcessBroken, match="the attributes take"):
        await handle.result(LIMIT)
    assert issubclass(PayloadTooLarge, PayloadError)


async def test_setting_attributes_belongs_in_a_workflow() -> None:
    with pytest.raises(WorkflowMisuse, match=r"set_attributes\(\) belongs in a workflow"):
        set_attributes(a=1)
