"""Published values of one name are found by seeks, however long the history is; backlogs are counted by a few."""

from __future__ import annotations

from uuid import UUID

import pytest
from msgspec import json

from perdure.kernel.event import EventType
from perdure.kernel.stream import EventStream
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import finished, going_on
from tests.store.ground_postgres import ENDED_WORKERS, PostgresGround

EVENTS = """
    INSERT INTO perdure.event (process, at, run, number, turn, token, version, type, place, name, payload)
    SELECT $1, perdure.now(), 1, n, 0, 1, 1, CASE WHEN n % 2 = 0 THEN 36 ELSE 1 END, n::text,
           CASE WHEN n % 4000 = 0 THEN 'rare' ELSE 'often' END, '1'
    FROM generate_series(1, 20000) AS s(n)
"""
SLEEPERS = """
    INSERT INTO perdure.process (id, created_at, changed_at, due_at, status, run, version, token, inbox, seen, events,
                                 deaths, alone_deaths, priority, reminder, kind, code, input)
    SELECT gen_random_uuid(), t, t, t + interval '1 hour', 'running', 1, 0, 0, 0, 0, 0, 0, 0, 4, n % 2 = 0, 'order',
           '1', '1'
    FROM generate_series(1, $1) AS s(n), (SELECT perdure.now()) AS k(t)
"""
READ = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM perdure.history($1, 1, $2, $3, $4, '{36}', '{rare}')"
ANSWERS = (EventType.CALL_ANSWERED, EventType.CALL_REFUSED)
ANSWERED = """
    INSERT INTO perdure.event (process, at, run, number, turn, token, version, type, place, name, payload)
    SELECT $1, perdure.now(), 1 + n % 3, n, 0, 1, 1, 38 + n % 2, '', 'ask:' || n, '1'
    FROM generate_series(1, 20000) AS s(n)
"""
FIND = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM perdure.history($1, 1, 0, 100, false, '{38,39}', $2)"
COUNT = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM perdure.backlogs('{}')"


UNREAD = """
    INSERT INTO perdure.stream_record (number, process, at, run, first, last, type)
    SELECT n, gen_random_uuid(), perdure.now(), 1, 1, 1, 0 FROM generate_series(1000, 21000) AS s(n)
"""
WAITING = """
    INSERT INTO perdure.stream_inlet (process, at, run, first, last, type)
    SELECT gen_random_uuid(), perdure.now(), 1, 1, 1, 0 FROM generate_series(1, 20000)
"""
OF_A_KIND = """
    EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM perdure.search_page(
        NULL, $1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, false, false, NULL, 1000)
"""
WHO_LIVES = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM perdure.workers_with_figures(false)"
REMOVE = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT perdure.remove_ended(ARRAY[$1::uuid], ARRAY[$2::int], 0)"


async def pages(ground: PostgresGround, query: str, *given: object) -> tuple[int, int]:
    """How many pages the query touches once its plans are made, and how many rows it answers."""
    told = {}
    for _ in range(2):
        [told] = json.decode(await ground.outside.fetchval(query, *given))
    plan = told["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], plan["Actual Rows"]


async def test_rule_8_published_values_of_one_name_are_found_by_a_seek_in_a_long_history(
    postgres: PostgresGround, trial: Trial
) -> None:
    row, other = await trial.started(), await trial.started()
    assert await trial.store.history(row.id, 1) == []  # plans are made while the table is tiny
    for process in (other.id, row.id):
        await postgres.outside.execute(EVENTS, UUID(bytes=process))
    id = UUID(bytes=row.id)
    for after, most, backward, rows in (
        (0, 100, False, 5),
        (16_000, 100, False, 1),
        (20_000, 100, False, 0),
        (0, 1, True, 1),
    ):
        touched, found = await pages(postgres, READ, id, after, most, backward)
        assert (after, backward, found) == (after, backward, rows)
        assert touched < 40, "it read through what others have published"


async def test_rule_8_the_answer_to_a_call_is_found_by_a_seek_in_a_long_history(
    postgres: PostgresGround, trial: Trial
) -> None:
    row = await trial.started()
    assert await trial.store.history(row.id, 1, types=ANSWERS, names=("ask:1",)) == []
    await postgres.outside.execute(ANSWERED, UUID(bytes=row.id))
    for names, rows in (["ask:7"], 1), (["ask:0"], 0), ([f"ask:{n}" for n in range(1, 30)], 29):
        touched, found = await pages(postgres, FIND, UUID(bytes=row.id), names)
        assert (names, found) == (names, rows)
        assert touched < 30 + 10 * len(names), "it read through the answers to other calls"


async def test_rule_8_a_removal_finds_what_streams_have_not_had_by_seeks(
    postgres: PostgresGround, trial: Trial
) -> None:
    await trial.store.records(EventStream, [EventStream("audit", 1)])
    worker = await trial.worker()

    async def touched() -> int:
        row = await trial.done(finished(await trial.done(going_on(await trial.owned(worker), 20))))
        [told] = json.decode(await postgres.outside.fetchval(REMOVE, UUID(bytes=row.id), row.version))
        return int(told["Plan"]["Shared Hit Blocks"] + told["Plan"]["Shared Read Blocks"])

    for _ in range(7):  # plans are made while the tables are tiny
        few = await touched()
    await postgres.outside.execute(UNREAD)
    await postgres.outside.execute(WAITING)
    assert await touched() < few + 100, "it read through what streams have not had of others"


async def test_who_lives_is_told_from_few_pages_however_many_workers_have_ended(
    postgres: PostgresGround, trial: Trial
) -> None:
    await trial.worker()
    for _ in range(7):  # plans are made while the table is tiny
        few, alive = await pages(postgres, WHO_LIVES)
    await postgres.outside.execute(ENDED_WORKERS, 2_000)
    touched, found = await pages(postgres, WHO_LIVES)
    assert found == alive
    assert touched < few + 20, "it read through the workers that have ended"


async def test_operations_are_found_by_a_seek_among_all_other_processes(postgres: PostgresGround, trial: Trial) -> None:
    await trial.store.now()
    await postgres.outside.execute(SLEEPERS, 20_000)
    await postgres.outside.execute("ANALYZE perdure.process")
    for kind, limit in ("order", 1_000), ("perdure/operation", 40):
        touched, _ = await pages(postgres, OF_A_KIND, kind)
        assert (touched > limit, kind) == (kind == "order", kind)


@pytest.mark.long
async def test_backlogs_are_counted_by_a_few_seeks_however_many_processes_wait(
    postgres: PostgresGround, trial: Trial
) -> None:
    touched = []
    for rows in (4_000, 40_000):
        await postgres.outside.execute(SLEEPERS, rows)
        await postgres.outside.execute("ANALYZE perdure.process")  # else it depends on autovacuum which index is read
        touched.append((await pages(postgres, COUNT))[0])
    assert touched[1] < touched[0] + 200
