"""Load in small: counts and states, no times; ``make load`` is the long form. Poison has its test among the kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.load import outage, overdue
from tests.load.herd import collides
from tests.load.loud import hot_counted
from tests.load.soak import kills_under_load

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]


async def test_l1_a_steady_load_loses_nothing_while_workers_are_killed(store_url: str, tmp_path: Path) -> None:
    assert "nothing lost" in await kills_under_load(store_url, tmp_path, kills=2)


async def test_f41_very_many_that_are_overdue_cost_few_calls_and_each_is_claimed_once(
    store_url: str, tmp_path: Path
) -> None:
    calls = await overdue.counted(store_url, tmp_path, 2_000)
    assert calls["claim"] + calls["commit"] <= 2_000 * overdue.CALLS_EACH


async def test_f43_workers_that_all_start_at_once_on_an_empty_database_do_not_collide(
    store_url: str, tmp_path: Path
) -> None:
    assert await collides(store_url, tmp_path, programs=2, engines=4, processes=40) == "8 enlisted, each with its lock"


async def test_f44_many_messages_to_one_process_are_heard_once_and_in_order(store_url: str, tmp_path: Path) -> None:
    assert "in order" in await hot_counted(store_url, tmp_path, 600)


async def test_f42_while_a_dependency_is_down_retries_stay_within_their_budget(store_url: str, tmp_path: Path) -> None:
    assert await outage.counted(store_url, tmp_path, 200) >= 200
