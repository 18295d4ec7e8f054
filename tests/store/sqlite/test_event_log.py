"""The log of event streams on SQLite: what no stream needs any more goes in short transactions (rule 25)."""

from __future__ import annotations

import sqlite3

import pytest

from perdure import limits
from perdure.clock import SECOND
from perdure.kernel.stream import EventStream
from perdure.testing.conformance import Trial
from perdure.testing.conformance.filling import filled
from perdure.testing.conformance.streaming import log, stream
from perdure.testing.conformance.trial import finished

LOGGED = """
    INSERT INTO stream_record (process, at, run, event, type)
    WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?)
    SELECT randomblob(16), 1, 1, 0, 101 FROM n
"""
"""So many records of processes that are not there any more."""

MOST = limits.STREAM_TRIMMED_RECORDS


@pytest.mark.parametrize("others", [False, True])
async def test_rule_25_what_a_removed_stream_leaves_goes_in_portions(
    trial: Trial, raw: sqlite3.Connection, others: bool
) -> None:
    made = await stream(trial)
    raw.execute(LOGGED, (3 * MOST + 1,))
    if others:
        [ahead, _] = await trial.store.records(EventStream, [EventStream("ahead", 1)])
        assert ahead.position == 3 * MOST + 1
    await trial.store.records(EventStream, [made.next(removed=True)])
    events = trial.store.backend.event_log
    for count in (2 * MOST + 1, MOST + 1, 1):
        assert raw.execute("SELECT count(*) FROM stream_record").fetchone() == (count,)
        assert await events.trim() is (count > MOST)
    await trial.started()
    assert await events.head() == 3 * MOST + 1 + others, "no number is given twice"


@pytest.mark.parametrize("others", [False, True])
async def test_a_new_stream_begins_with_nothing_that_a_removed_one_has_left(
    trial: Trial, raw: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, others: bool
) -> None:
    monkeypatch.setattr(limits, "STREAM_TRIMMED_RECORDS", 2)
    made = await stream(trial)
    gone = await trial.owned(await trial.worker())
    raw.execute(LOGGED, (7,))
    if others:
        await trial.store.records(EventStream, [EventStream("ahead", 1)])
    await trial.store.records(EventStream, [made.next(removed=True)])  # and its remover is killed
    await trial.done(finished(gone))
    await trial.time.advance(1)
    assert (await trial.store.prune(0, 3600 * SECOND, 10)).processes == 1
    row = await trial.started()
    new = await filled(trial, "late")
    told = [one.process for one in await log(trial, new.position or 0)]
    assert told == ([gone.id] * 2 if others else []) + [row.id]
    assert raw.execute("SELECT count(*) FROM stream_record WHERE type >= 0").fetchone() == (len(told),)
