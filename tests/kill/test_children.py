"""SIGKILL around children and messages: no child is lost or started twice, each answer and signal comes once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from perdure.engine import Engine
from perdure.errors import ProcessCancelled
from perdure.kernel.process import Status
from perdure.store.base import Search
from tests.kill.harness import LIMIT, Harness, points, said
from tests.kill.kinship import families_whole
from tests.kill.orchard import EVERYTHING, apple, hedge, listener, pear, talker, tree
from tests.kill.workload import gate
from tests.runtime.conftest import until, until_row

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300), pytest.mark.usefixtures("quick_probes")]
KILL, STOP, GO_ON, END = 9, 19, 18, 15
SIDES = ("before", "after")
PARENTS = points([(call, side) for call in (1, 2) for side in SIDES], (1, "before"), (1, "after"), (2, "after"))
TELLERS = points([(1, "before"), (1, "after"), (2, "before"), (3, "after")], (1, "after"), (2, "before"), (3, "after"))
SHORT = {"lease_seconds": 1.2, "beat_seconds": 0.2}


def kill_point(call: int, side: str, signal: int = KILL, door: str = "commit") -> dict[str, Any]:
    return {"door": door, "call": call, "side": side, "signal": signal}


def hosts(*names: str) -> list[str]:
    return [f"tests.kill.orchard:{name}" for name in names]


@pytest.mark.parametrize(("call", "side"), PARENTS)
async def test_a_parent_killed_at_a_commit_keeps_its_children_and_starts_none_twice(
    harness: Harness, call: int, side: str
) -> None:
    # The parent's first commit starts a child, the second records its answer and starts another, the third ends.
    async with Engine(harness.url, work=True, workflows=[tree, apple]) as survivor:
        child = await harness.start_worker(
            start="tree", modules=hosts("PARENTS"), key="k", kill_point=kill_point(call, side)
        )
        assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
        assert await (await survivor.handle(tree, "k")).result(LIMIT) == 3
        kinds = await families_whole(survivor)
        assert [row.status for row in kinds["apple"]] == [Status.COMPLETED] * 2
        assert sorted(harness.effects().values()) == [1, 1], "the worker of the children did not die"


@pytest.mark.parametrize("side", SIDES)
async def test_a_child_s_worker_killed_at_the_commit_that_carries_the_answer_loses_nothing(
    harness: Harness, side: str
) -> None:
    async with Engine(harness.url, work=True, workflows=[tree]) as engine:
        handle = await engine.start(tree)
        child = await harness.start_worker(modules=hosts("APPLES"), kill_point=kill_point(1, side))
        assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
        async with Engine(harness.url, work=True, workflows=[apple]) as survivor:
            assert await handle.result(LIMIT) == 3
            kinds = await families_whole(survivor)
        assert len(kinds["apple"]) == 2
        effects = harness.effects()
        assert len(effects) == 2, "each step has one idempotency key"
        assert sorted(effects.values()) == ([1, 2] if side == "before" else [1, 1])


@pytest.mark.parametrize(("call", "side"), [(2, "after"), (3, "before")])
async def test_a_worker_killed_with_a_parent_and_its_child_in_hand_loses_neither(
    harness: Harness, call: int, side: str
) -> None:
    child = await harness.start_worker(
        start="tree", modules=hosts("EVERYTHING"), key="k", kill_point=kill_point(call, side)
    )
    assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
    async with Engine(harness.url, work=True, workflows=EVERYTHING) as survivor:
        assert await (await survivor.handle(tree, "k")).result(LIMIT) == 3
        kinds = await families_whole(survivor)
        assert len(kinds["apple"]) == 2
        assert len(harness.effects()) == 2
        assert sum(harness.effects().values()) <= 3, "only the step in flight may run again"


async def test_a_parent_stopped_past_its_lease_starts_no_child_of_its_own_when_it_goes_on(harness: Harness) -> None:
    async with Engine(harness.url, work=True, workflows=[tree, apple]) as survivor:
        child = await harness.start_worker(
            start="tree",
            key="k",
            modules=hosts("PARENTS"),
            options=SHORT,
            kill_point=kill_point(1, "before", STOP),
            timeout=LIMIT,
        )
        async with asyncio.timeout(LIMIT):
            while not (await survivor.count()).get("tree"):
                await asyncio.sleep(0.01)
        assert await (await survivor.handle(tree, "k")).result(LIMIT) == 3
        before = await families_whole(survivor)
        child.send_signal(GO_ON)
        assert await said(child, "result") == "3"
        metrics = json.loads(await said(child, "metrics"))
        assert metrics["commits_refused"] == 1, "the late commit, with the child in it, was refused whole"
        assert await families_whole(survivor) == before
        assert len(before["apple"]) == 2


async def test_a_parent_terminated_while_its_child_s_worker_is_dead_takes_the_child_with_it(harness: Harness) -> None:
    async with Engine(harness.url, work=True, workflows=[hedge]) as engine:
        handle = await engine.start(hedge)
        child = await harness.start_worker(modules=hosts("PEARS"))
        await until(harness.effects)
        [running] = await engine.list(Search(kind="pear"))
        child.send_signal(KILL)
        await child.wait()
        await handle.terminate(why="winter")
        async with Engine(harness.url, work=True, workflows=[pear]) as survivor:
            with pytest.raises(ProcessCancelled):
                await survivor.process(running.id).result(timeout=LIMIT)
            kinds = await families_whole(survivor)
            assert [row.status for row in kinds["pear"]] == [Status.CANCELLED]
            [parent] = kinds["hedge"]
            assert (parent.status, parent.inbox, parent.seen) == (Status.CANCELLED, 1, 0), "its answer is kept"
            assert not gate().exists()


async def test_a_parent_terminated_while_its_child_runs_elsewhere_ends_the_child_there(harness: Harness) -> None:
    async with Engine(harness.url, work=True, workflows=[hedge]) as engine:
        handle = await engine.start(hedge)
        child = await harness.start_worker(modules=hosts("PEARS"))
        await until(harness.effects)
        [running] = await engine.list(Search(kind="pear"))
        await handle.terminate(why="winter")
        with pytest.raises(ProcessCancelled):
            await engine.process(running.id).result(timeout=LIMIT)
        child.send_signal(END)
        metrics = json.loads(await said(child, "metrics"))
        assert metrics["cancelled"] == 1
        await families_whole(engine)


@pytest.mark.parametrize(("call", "side"), TELLERS)
async def test_signals_told_around_a_kill_are_each_received_once(harness: Harness, call: int, side: str) -> None:
    async with Engine(harness.url, work=True, workflows=[listener]) as engine:
        heard = await engine.start(listener, 3)
        child = await harness.start_worker(
            start="talker", key="k", args=[heard.id], modules=hosts("TALKERS"), kill_point=kill_point(call, side)
        )
        assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
        async with Engine(harness.url, work=True, workflows=[talker]) as survivor:
            assert await (await survivor.handle(talker, "k")).result(LIMIT) == "told"
            assert await heard.result(LIMIT) == [1, 2, 3]
            row = await until_row(engine, heard.id, lambda row: row.final)
            assert row.inbox == 3
            await families_whole(survivor)
