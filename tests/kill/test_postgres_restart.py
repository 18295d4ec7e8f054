"""PostgreSQL crashes and comes back under load: no law broken, no hand needed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.engine import Engine
from perdure.testing.postgres import Server
from tests.kill import workload
from tests.kill.harness import LIMIT, Harness, laws_hold
from tests.kill.workload import five_pauses

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of this test's own, since it will be crashed."""
    with Server() as server:
        yield server


@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGQUIT, id="crash"), pytest.param(signal.SIGINT, id="fast", marks=pytest.mark.long)]
)
async def test_the_database_restarts_under_load_and_every_process_completes(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    url = server.fresh_database()
    harness = Harness(url, tmp_path)
    monkeypatch.setenv(workload.LEDGER, str(harness.ledger))
    async with Engine(url, work=True, workflows=[five_pauses]) as engine:
        starting = asyncio.create_task(engine.start_many(five_pauses, [(n,) for n in range(150)]))
        for wanted in (50, 300):
            async with asyncio.timeout(LIMIT):
                while len(harness.effects()) < wanted:
                    await asyncio.sleep(0.01)
            await asyncio.to_thread(server.restart, how)
        handles = await asyncio.wait_for(starting, LIMIT)
        results = await asyncio.gather(*(handle.result(LIMIT) for handle in handles))
        assert results == [5 * n for n in range(150)]
        assert len(harness.effects()) == 750
        await laws_hold(engine)
