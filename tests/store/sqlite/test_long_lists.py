"""A list of many rows, of which a few are read at a time, is the list that one statement would answer."""

from __future__ import annotations

import sqlite3
from itertools import product

import pytest
from msgspec.structs import replace

from perdure.kernel.commit import Start
from perdure.kernel.process import Process, Status
from perdure.store.base import Search
from perdure.testing.conformance import Trial

FAILED = Search(statuses=(Status.FAILED,))
FINISH = "UPDATE process SET status = ?, due_at = NULL, owner = NULL, reminder = 0 WHERE id = ?"
ROWS = 2_600
LIMITS = (99, 100, 101, 120, 200, 250, 370, 371, 1_000, 5_000)


@pytest.fixture
async def rows(trial: Trial, raw: sqlite3.Connection) -> list[Process]:
    """Newest first; the newest and two heaps far behind them have failed, every other one of the rest is completed."""
    started = [trial.process(kind=("order", "refund")[n % 2]) for n in range(ROWS)]
    await trial.store.start(list(map(Start, started)))
    newest = sorted(started, key=lambda row: row.id, reverse=True)
    failed = [*range(120), *range(1_400, 1_640), *range(2_590, ROWS)]
    numbers = dict.fromkeys(failed, 5) | {n: 4 for n in range(120, ROWS, 2) if n not in failed}
    raw.executemany(FINISH, [(number, newest[n].id) for n, number in numbers.items()])
    return await trial.store.search(Search(limit=ROWS))


@pytest.mark.parametrize("search", [FAILED, replace(FAILED, kind="order"), Search(), Search(kind="refund")])
async def test_a_long_list_is_complete_and_in_order(trial: Trial, rows: list[Process], search: Search) -> None:
    assert len(rows) == ROWS
    for before, limit in product((None, rows[60].id, rows[1_500].id), LIMITS):
        fit = [
            row
            for row in rows
            if search.kind in (None, row.kind)
            and (not search.statuses or row.status in search.statuses)
            and (before is None or row.id < before)
        ]
        assert await trial.store.search(replace(search, before_id=before, limit=limit)) == fit[:limit]
