"""Rows that we took from whoever held them, and have claimed again before we heard that we took them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.testing.faults import FaultyStore, Gate
from tests.runtime.conftest import LIMIT, Open, until
from tests.runtime.kin import crash, done, gates, kid


@pytest.fixture(autouse=True)
def _nothing_done() -> Iterator[None]:
    done.clear()
    gates.clear()
    yield
    gates.clear()


def unheard(store: FaultyStore, handle: Handle[str]) -> Gate:
    """The next commit of that process is written, and whoever wrote it does not hear of it until this is opened."""
    gate = store.after = Gate("commit", lambda commits: any(commit.after.id == handle.id_bytes for commit in commits))
    return gate


async def kept(engine: Engine, handle: Handle[str]) -> None:
    """The second attempt is at work, and nobody takes it from its worker: its result counts."""
    gates["kid"].set()
    assert await engine.process(handle.id).result(timeout=LIMIT) == "kid"
    assert (done, engine.metrics()["late_results"]) == (["kid", "kid"], 0)


async def test_what_a_sweep_has_freed_and_we_have_claimed_since_is_not_let_go(opened: Open) -> None:
    first, store = await opened(work=True, workflows=[kid])
    handle = await first.start(kid, "kid")
    await until(lambda: done)
    blind = store.before = Gate("search")  # the sweeps of the first find nothing
    second, slow = await opened(work=True, workflows=[kid])
    gate = unheard(slow, handle)
    await crash(first, store)
    await asyncio.wait_for(gate.reached.wait(), LIMIT)
    await until(lambda: len(done) == 2)
    gate.open.set()
    await until(lambda: second.metrics()["orphans_freed"])
    await kept(second, handle)
    blind.open.set()


async def test_what_a_command_has_begun_anew_and_we_have_claimed_since_is_not_let_go(opened: Open) -> None:
    engine, slow = await opened(work=True, workflows=[kid])
    handle = await engine.start(kid, "kid")
    await until(lambda: done)
    gate = unheard(slow, handle)
    restart = asyncio.create_task(handle.restart())
    await asyncio.wait_for(gate.reached.wait(), LIMIT)
    await until(lambda: len(done) == 2)
    gate.open.set()
    await restart
    await kept(engine, handle)
