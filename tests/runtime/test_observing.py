"""Observe mode: the first worker after all others have gone pauses recovery, and tells what it would recover."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Engine, workflow
from perdure.errors import DefinitionError
from perdure.kernel.claim import Claim
from perdure.kernel.worker import WorkerRow
from perdure.store.base import Overdue, Search
from tests.runtime.conftest import Open


@workflow
async def order() -> str:
    return "done"


async def test_the_first_worker_only_observes_until_a_person_resumes_and_ordinary_work_goes_on(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[order], recovery="observe")
    state = await engine.recovery.state()
    assert state.paused and state.paused_by == f"worker {engine.machine.name()}" and state.origin == "worker"
    assert "look at what it found, then resume" in state.paused_why
    assert await (await engine.start(order)).result() == "done"
    await engine.recovery.resume(who="Ann")
    again, _ = await opened(work=True, workflows=[order], recovery="observe")
    state = await again.recovery.state()
    assert (state.paused, state.who) == (False, "Ann"), "a worker beside others does not switch off what they do"
    await again.close()
    await engine.close()
    later, _ = await opened(work=True, workflows=[order], recovery="observe")
    assert (await later.recovery.state()).paused, "nobody lives: it may be after the next outage"


async def test_what_a_dead_worker_held_is_told_and_left_alone_from_the_first_sweep_on(opened: Open) -> None:
    client, store = await opened()
    handle = await client.start(order)
    row = await client.row(handle.id)
    gone = client.machine.new_id()
    await store.enlist(WorkerRow(gone, "gone:1", b"{}"), 1)
    [taken] = (await store.claim(Claim(gone, ((row.kind, row.code),), 1, 1))).claimed
    assert taken.process.id == row.id
    await store.retire(gone, None, True)
    engine, _ = await opened(work=True, workflows=[order], recovery="observe")
    [loop] = [loop for loop in engine.worker.supervisor.loops if loop.name == "sweep owner gone"]
    await loop.stop()  # its first pass may be under way, or over
    await loop._tick()
    await engine.worker.supervisor.log.look()
    views = {view.sweep: view for view in await engine.recovery.sweeps()}
    assert (views["owner gone"].left, views["owner gone"].changed) == (1, 0)
    assert len(await store.search(Search(overdue=Overdue.ORPHANED))) == 1
    await engine.recovery.resume(who="Ann")
    await loop._tick()
    assert await handle.result() == "done"


async def test_who_has_paused_recovery_before_is_still_named(opened: Open) -> None:
    client, _ = await opened()
    await client.recovery.pause(who="Ann", why="the release is broken")
    engine, _ = await opened(work=True, workflows=[order], recovery="observe")
    state = await engine.recovery.state()
    assert (state.paused_by, state.paused_why) == ("Ann", "the release is broken")


@pytest.mark.parametrize("wrong", ["off", "", None, True])
def test_a_mode_that_is_none_is_refused_when_the_engine_is_made(wrong: Any) -> None:
    with pytest.raises(DefinitionError, match='"on" or "observe"'):
        Engine("sqlite:///:memory:", recovery=wrong)
