"""Rule 15: the time comes from the store, once for a statement, and its high-water mark outlives a fail-over."""

from __future__ import annotations

import asyncio

from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import going_on
from tests.store.ground_postgres import PostgresGround


async def test_all_rows_of_a_batch_have_one_time(postgres: PostgresGround, trial: Trial) -> None:
    await trial.time.freeze(None)  # type: ignore[attr-defined]
    worker = await trial.worker()
    rows = [await trial.owned(worker) for _ in range(50)]
    answers = await trial.store.commit([going_on(row) for row in rows])
    stored = {row.changed_at for row in await trial.stored()}
    assert stored == {answer.now for answer in answers}
    assert len(stored) == 1


async def test_without_a_test_the_time_is_the_servers_and_moves_inside_a_transaction(
    postgres: PostgresGround, trial: Trial
) -> None:
    await trial.time.freeze(None)  # type: ignore[attr-defined]
    async with postgres.outside.transaction():
        first = await postgres.outside.fetchval("SELECT perdure.micros(perdure.now())")
        second = await postgres.outside.fetchval("SELECT perdure.micros(perdure.now())")
        told = await postgres.outside.fetchval("SELECT perdure.micros(clock_timestamp())")
    assert first < second < told


async def test_each_beat_raises_the_high_water_mark_and_never_lowers_it(postgres: PostgresGround, trial: Trial) -> None:
    worker = await trial.worker()
    await trial.time.advance(100)
    high = (await trial.beat(worker)).now
    await trial.time.set_back(3600)
    await trial.beat(worker)
    assert await postgres.outside.fetchval("SELECT perdure.micros(high_water) FROM perdure.clock") == high


async def test_beats_of_many_workers_do_not_wait_for_one_another_at_the_clock(
    postgres: PostgresGround, trial: Trial
) -> None:
    workers = [await trial.worker(str(number)) for number in range(3)]
    async with postgres.outside.transaction():
        await postgres.outside.execute("SELECT FROM perdure.clock FOR UPDATE")
        answers = await asyncio.gather(*(trial.beat(worker) for worker in workers))
    assert all(answer.alive for answer in answers)


async def test_instants_go_there_and_back_to_the_microsecond(postgres: PostgresGround) -> None:
    times = [0, 1, -1, 999_999, 1_780_000_000_123_457, 4_102_444_800_000_001, 1 << 50, -(1 << 50)]
    back = await postgres.outside.fetchval(
        "SELECT array_agg(perdure.micros(perdure.instant(t)) ORDER BY n) "
        "FROM unnest($1::bigint[]) WITH ORDINALITY u(t, n)",
        times,
    )
    assert back == times
