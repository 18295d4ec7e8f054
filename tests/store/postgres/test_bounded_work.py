"""What one statement does for many rows has a bound: it runs where commits wait, and a connection has ten seconds."""

from __future__ import annotations

import asyncpg
import pytest

from perdure import limits
from perdure.clock import SECOND
from perdure.kernel.commit import Start
from perdure.kernel.process import Status
from perdure.kernel.stream import EventStream
from perdure.store.base import Pruned
from perdure.testing.conformance import Trial
from perdure.testing.conformance.filling import filled
from perdure.testing.conformance.streaming import log, stream
from tests.store.ground_postgres import PostgresGround

pytestmark = pytest.mark.usefixtures("warm")

HOUR = 3600 * SECOND


async def ended(trial: Trial, *events: int) -> list[bytes]:
    """Processes that have ended one after the other, with so many events."""
    rows = [trial.process(status=Status.COMPLETED, result=b"1", events=count) for count in events]
    for row in rows:
        await trial.store.start([Start(row)])
        await trial.time.advance(1)
    return [row.id for row in rows]


async def portion(postgres: PostgresGround, most: int) -> asyncpg.Record:
    """What one statement of a pruning removes."""
    return await postgres.outside.fetchrow("SELECT * FROM perdure.prune(0, 3600000000, $1)", most)


async def test_a_pruning_removes_processes_of_a_bounded_number_of_events_at_once(
    trial: Trial, postgres: PostgresGround
) -> None:
    most = limits.PRUNED_EVENTS
    ids = await ended(trial, most // 2, most // 2, 1, 5 * most, 1, 1)
    for removed in (2, 1, 1, 2, 0):
        assert (await portion(postgres, 100))["processes"] == removed
        ids = ids[removed:]
        assert [row.id for row in await trial.stored()] == ids[::-1]


async def test_a_pruning_goes_on_in_portions_until_it_has_removed_what_it_was_asked_for(trial: Trial) -> None:
    await ended(trial, *[limits.PRUNED_EVENTS] * 5)
    assert await trial.store.prune(0, HOUR, 3) == Pruned(3, 0)
    assert await trial.store.prune(0, HOUR, 3) == Pruned(2, 0)


FORMER = """
    INSERT INTO perdure.event (process, run, number, turn, type, at, place, name, token, version)
    SELECT p.id, r.run, n.number, 0, 1, p.created_at, '', '', 0, 0
    FROM perdure.process p, unnest($1::int[]) WITH ORDINALITY AS r(events, run),
         generate_series(1, r.events) AS n(number)
"""
"""Events of former runs of all processes: so many of each run."""


async def long_since(postgres: PostgresGround, *events: int) -> None:
    """Give the processes former runs, with so many events each."""
    await postgres.outside.execute("UPDATE perdure.event SET run = $1", len(events) + 1)
    await postgres.outside.execute("UPDATE perdure.process SET run = $1", len(events) + 1)
    await postgres.outside.execute(FORMER, list(events))


async def test_the_events_of_former_runs_count_in_a_pruning(trial: Trial, postgres: PostgresGround) -> None:
    await ended(trial, 1, 1)
    await long_since(postgres, limits.PRUNED_EVENTS)
    assert (await portion(postgres, 100))["processes"] == 1


async def test_the_former_runs_of_a_process_with_very_many_events_are_pruned_first_in_portions(
    trial: Trial, postgres: PostgresGround
) -> None:
    most = limits.PRUNED_EVENTS
    [id] = await ended(trial, 1)
    await long_since(postgres, 2 * most, most, 5)
    row = await trial.row(id)
    counts = "SELECT array_agg(c.n ORDER BY c.run) FROM (SELECT run, count(*) AS n FROM perdure.event GROUP BY 1) AS c"
    for left in ([most, most, 5], [most, 5], [1, 5]):
        assert (await portion(postgres, 100))["processes"] == 0
        assert await postgres.outside.fetchval(counts) == left
        assert await trial.row(id) == row
    assert (await portion(postgres, 100))["processes"] == 1
    assert await trial.stored() == []
    assert await postgres.outside.fetchval(counts) is None


DELETED = """
    SELECT sum(n_tup_del)::int FROM pg_stat_xact_user_tables WHERE schemaname = 'perdure' AND relname LIKE 'stream%'
"""
"""Rows that the transaction under way has removed one by one from the log of event streams."""

LEFT = """
    SELECT (SELECT count(*) FROM perdure.stream_inlet) + (SELECT count(*) FROM perdure.stream_record)
         + (SELECT count(*) FROM perdure.stream_kept) + (SELECT count(*) FROM perdure.stream_gone)
"""


async def test_no_row_of_the_log_is_removed_by_itself_while_the_end_of_the_last_stream_keeps_all_others_out(
    trial: Trial, postgres: PostgresGround
) -> None:
    await stream(trial)
    await ended(trial, 1, 1)
    assert await trial.store.prune(0, HOUR, 1) == Pruned(1, 0)
    assert len(await log(trial)) == 3
    await trial.started()
    outside = postgres.outside
    async with outside.transaction():
        await outside.execute("DELETE FROM perdure.event_stream")
        before = await outside.fetchval(DELETED)
        await outside.execute("SELECT perdure.close_inlet()")
        assert await outside.fetchval(DELETED) == before
    assert await outside.fetchval(LEFT) == 0


LOGGED = """
    INSERT INTO perdure.stream_record
    SELECT h.number + n, gen_random_uuid(), now(), 1, 0, 0, 101 FROM perdure.stream_head h, generate_series(1, $1) AS n
"""
"""So many records of processes that are not there any more, and were told to a stream that has come farther."""


async def test_what_a_stream_leaves_that_was_far_behind_is_removed_in_portions(
    trial: Trial, postgres: PostgresGround
) -> None:
    most = limits.STREAM_TRIMMED_RECORDS
    behind = await stream(trial)
    ahead = await far_ahead(trial, postgres, 3 * most + 1)
    [left] = await trial.store.records(EventStream, [behind.next(removed=True)])
    assert left == ahead
    events = trial.store.backend.event_log
    for count in (2 * most + 1, most + 1, 1, 0):
        assert await postgres.outside.fetchval("SELECT count(*) FROM perdure.stream_record") == count
        assert await events.trim() is (count >= most)


async def test_a_new_stream_begins_with_nothing_that_a_removed_one_has_left(
    trial: Trial, postgres: PostgresGround
) -> None:
    behind = await stream(trial)
    await far_ahead(trial, postgres, 3 * limits.STREAM_TRIMMED_RECORDS)
    await trial.store.records(EventStream, [behind.next(removed=True)])  # and its remover is killed
    row = await trial.started()
    made = await filled(trial, "late")
    assert [one.process for one in await log(trial, made.position or 0)] == [row.id]


async def test_what_was_kept_for_streams_goes_also_while_others_write_all_the_time(
    trial: Trial, postgres: PostgresGround
) -> None:
    made = await stream(trial)
    await ended(trial, 1)
    assert await trial.store.prune(0, HOUR, 1) == Pruned(1, 0)
    end = (await log(trial))[-1].position
    await trial.started()
    [made] = await trial.store.records(EventStream, [made.next(position=end)])
    await trial.started()
    assert await postgres.outside.fetchval("SELECT count(*) FROM perdure.stream_inlet") == 2
    assert await postgres.outside.fetchval("SELECT count(*) FROM perdure.stream_gone") == 0


async def far_ahead(trial: Trial, postgres: PostgresGround, records: int) -> EventStream:
    """Make another stream that was told of so many records: the first one was told of none."""
    ahead = next(
        row for row in await trial.store.records(EventStream, [EventStream("ahead", 1)]) if row.name == "ahead"
    )
    await postgres.outside.execute(LOGGED, records)
    await postgres.outside.execute("UPDATE perdure.stream_head SET number = number + $1", records)
    [ahead, _] = await trial.store.records(EventStream, [ahead.next(position=records)])
    return ahead
