"""Searches by status: the few that are unfinished are found without reading all that ever finished."""

from __future__ import annotations

import pytest
from msgspec import json

from perdure.clock import SECOND
from perdure.kernel.process import Status
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import resting
from tests.store.ground_postgres import PostgresGround

FINISHED = """
    INSERT INTO perdure.process (id, created_at, changed_at, status, run, version, token, inbox, seen, events,
                                 deaths, alone_deaths, priority, reminder, kind, code, input)
    SELECT gen_random_uuid(), t, t, 'completed', 1, 0, 0, 0, 0, 0, 0, 0, 4, false, 'order', '1', '1'
    FROM generate_series(1, $1), (SELECT perdure.now()) AS n(t)
"""
SEARCH = """
    EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)
    SELECT * FROM perdure.search_page(NULL, NULL, NULL, NULL, $1, NULL, NULL, NULL, NULL, false, false, NULL, 20)
"""
ROWS = 20_000
PAGES = 150
"""Pages touched by a search, catalogs included; all that finished fill four times as many."""


@pytest.mark.parametrize(
    ("statuses", "found"),
    [
        (("running",), 3),
        (("held", "broken"), 1),
        (("running", "held", "broken"), 4),
    ],
)
async def test_the_unfinished_are_found_without_reading_all_that_ever_finished(
    postgres: PostgresGround, trial: Trial, statuses: tuple[str, ...], found: int
) -> None:
    now = await trial.time.now()
    await trial.started()
    await trial.started(due_at=now + SECOND)
    worker = await trial.worker()
    held = await trial.owned(worker)
    await trial.done(resting(held, now + SECOND, Status.HELD))
    await trial.owned(worker)
    await postgres.outside.execute(FINISHED, ROWS)
    await postgres.outside.execute("ANALYZE perdure.process")
    for _ in range(2):
        [told] = json.decode(await postgres.outside.fetchval(SEARCH, list(statuses)))
    assert told["Plan"]["Actual Rows"] == found
    assert told["Plan"]["Shared Hit Blocks"] + told["Plan"]["Shared Read Blocks"] < PAGES
