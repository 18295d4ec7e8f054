"""Load in small: counts and states, no times; ``make load`` is the long form. Poison has another among the kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.load import outage, overdue
from tests.load.herd import collides
from tests.load.kills import next_commits
from tests.load.loud import calls_counted, hot_counted
from tests.load.soak import kills_under_load
from tests.load.suspects import bitten, twice_orphaned

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]


async def test_a_steady_load_loses_nothing_while_workers_are_killed(store_url: str, tmp_path: Path) -> None:
    assert "nothing lost" in await kills_under_load(store_url, tmp_path, kills=2)


async def test_very_many_that_are_overdue_cost_few_calls_and_each_is_claimed_once(
    store_url: str, tmp_path: Path
) -> None:
    calls = await overdue.counted(store_url, tmp_path, 2_000)
    assert calls["claim"] + calls["commit"] <= 2_000 * overdue.CALLS_EACH


async def test_workers_that_all_start_at_once_on_an_empty_database_do_not_collide(
    store_url: str, tmp_path: Path
) -> None:
    assert await collides(store_url, tmp_path, programs=2, engines=4, processes=40) == "8 enlisted, each with its lock"


@pytest.mark.long
async def test_many_messages_to_one_process_are_heard_once_and_in_order(store_url: str, tmp_path: Path) -> None:
    assert "in order" in await hot_counted(store_url, tmp_path, 600)


@pytest.mark.long
async def test_many_calls_that_are_queued_to_one_machine_are_answered_once_and_in_order(
    store_url: str, tmp_path: Path
) -> None:
    assert "in order" in await calls_counted(store_url, tmp_path, 600)


async def test_while_a_dependency_is_down_retries_stay_within_their_budget(store_url: str, tmp_path: Path) -> None:
    assert await outage.counted(store_url, tmp_path, 200) >= 200


@pytest.mark.long
async def test_the_innocent_whose_worker_died_twice_go_on_side_by_side_and_not_one_by_one(
    store_url: str, tmp_path: Path
) -> None:
    assert len(await twice_orphaned(store_url, tmp_path, 40, 20.0)) == 40


@pytest.mark.long
async def test_one_that_kills_its_worker_is_found_among_the_innocent_and_parked_alone(
    store_url: str, tmp_path: Path
) -> None:
    _, deaths = await bitten(store_url, tmp_path, 24, 4.0)
    assert 5 <= deaths <= 5 + (25).bit_length()


@pytest.mark.long
async def test_what_a_killed_worker_held_is_freed_and_goes_on(store_url: str, tmp_path: Path) -> None:
    freed, waited = await next_commits(store_url, tmp_path, kills=1, processes=30)
    assert freed and all(before < after for before, after in zip(freed, waited, strict=True))
