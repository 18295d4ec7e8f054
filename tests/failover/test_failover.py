"""The server restarts and fails over under load, the short form; ``make failover`` does it a hundred times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.failover.rounds import failovers, losses, restarts

NO_FSYNC = ("fsync=off",)
"""Servers are killed here, no machine; the long form leaves it on."""
pytestmark = [pytest.mark.kill, pytest.mark.timeout(180)]


@pytest.mark.long
async def test_a_server_that_crashes_under_load_loses_nothing_acknowledged(tmp_path: Path) -> None:
    assert "all finished" in await restarts(2, tmp_path, settings=NO_FSYNC)


@pytest.mark.long
async def test_after_a_failover_to_a_synchronous_standby_everything_acknowledged_is_there(tmp_path: Path) -> None:
    assert "all finished" in await failovers(1, tmp_path, settings=NO_FSYNC)


async def test_under_load_nothing_that_an_asynchronous_failover_set_back_is_done_again(tmp_path: Path) -> None:
    assert "none done again by itself" in await losses(1, tmp_path, settings=NO_FSYNC)
