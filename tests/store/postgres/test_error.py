"""PostgreSQL's errors are told apart by SQLSTATE alone, and each says what to do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from perdure.errors import (
    BadRecord,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from perdure.kernel.commit import Verdict
from perdure.store.postgres.error import translated
from perdure.store.postgres.store import PostgresStore
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import going_on
from tests.store.ground_postgres import PostgresGround

KINDS = {
    "08006": StoreUnavailable,
    "0A000": StoreUnavailable,
    "22003": BadRecord,
    "22021": BadRecord,
    "22P05": BadRecord,
    "23514": BadRecord,
    "25006": StoreReadOnly,
    "42501": StoreError,
    "42883": StoreUnavailable,
    "42P01": StoreUnavailable,
    "53100": StoreFull,
    "53200": StoreUnavailable,
    "54000": BadRecord,
    "55P03": StoreUnavailable,
    "57014": StoreUnavailable,
    "57P01": StoreUnavailable,
    "58030": StoreUnavailable,
    "XX000": StoreError,
}


@asynccontextmanager
async def raising(ground: PostgresGround, state: str, times: int = 1_000_000) -> AsyncIterator[None]:
    """Every new event raises this SQLSTATE, so many times; the count survives the rollback."""
    await ground.outside.execute(
        f"""
        CREATE SEQUENCE perdure.raised;
        CREATE FUNCTION perdure.fail() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF nextval('perdure.raised') <= {times} THEN
                RAISE EXCEPTION 'deadlock detected, disk full, connection lost' USING ERRCODE = '{state}';
            END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER fail BEFORE INSERT ON perdure.event FOR EACH ROW EXECUTE FUNCTION perdure.fail();
        """
    )
    try:
        yield
    finally:
        await ground.outside.execute("DROP FUNCTION perdure.fail CASCADE; DROP SEQUENCE perdure.raised")


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(("state", "kind"), KINDS.items())
async def test_a_sqlstate_has_one_meaning_whatever_its_text_says(
    postgres: PostgresGround, trial: Trial, state: str, kind: type[StoreError]
) -> None:
    row = await trial.owned(await trial.worker())
    async with raising(postgres, state):
        with pytest.raises(kind, match=rf"SQLSTATE {state}\); \w+") as caught:
            await trial.commit(going_on(row))
    assert type(caught.value) is kind
    assert (await trial.commit(going_on(row))).verdict is Verdict.APPLIED


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("state", ["40001", "40P01"])
async def test_a_clash_is_tried_again_at_once_inside_the_store(
    postgres: PostgresGround, trial: Trial, state: str
) -> None:
    row = await trial.owned(await trial.worker())
    async with raising(postgres, state, times=5):
        assert (await trial.commit(going_on(row))).verdict is Verdict.APPLIED
        assert await postgres.outside.fetchval("SELECT last_value FROM perdure.raised") == 6
    assert len((await trial.whole(row.id)).events) == 1


@pytest.mark.usefixtures("warm")
async def test_a_clash_that_does_not_end_becomes_unavailable(postgres: PostgresGround, trial: Trial) -> None:
    row = await trial.owned(await trial.worker())
    async with raising(postgres, "40P01"):
        with pytest.raises(StoreUnavailable):
            await trial.commit(going_on(row))
        assert await postgres.outside.fetchval("SELECT last_value FROM perdure.raised") == 20


async def test_a_session_ended_by_an_administrator_comes_back_by_itself(postgres: PostgresGround, trial: Trial) -> None:
    worker = await trial.worker()
    await postgres.outside.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'perdure %'"
    )
    answered = 0
    for _ in range(4):
        try:
            answered += (await trial.beat(worker)).alive
        except StoreUnavailable:
            continue
    assert answered >= 3


async def test_a_server_that_only_reads_is_told_so(postgres: PostgresGround, trial: Trial) -> None:
    name = postgres.url.rpartition("/")[2]
    await postgres.outside.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    store = postgres.store()
    try:
        await store.open()
        with pytest.raises(StoreReadOnly, match="primary"):
            await Trial(postgres, store).started()
    finally:
        await postgres.outside.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    # The connection was dropped: the next one may find another server, here the same one in a better mood.
    assert await Trial(postgres, store).started()
    await store.close()


@pytest.mark.parametrize(
    ("change", "advice"),
    [(("perdure@", "nobody_here@"), "user and password"), (("/trial", "/no_such_trial"), "createdb")],
)
async def test_an_address_that_is_wrong_is_told_with_what_to_mend(
    postgres: PostgresGround, change: tuple[str, str], advice: str
) -> None:
    with pytest.raises(StoreError, match=advice) as caught:
        await PostgresStore(postgres.url.replace(*change, 1)).open()
    assert not isinstance(caught.value, StoreUnavailable)


async def test_a_closed_store_says_so(postgres: PostgresGround) -> None:
    store = postgres.store()
    await store.open()
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.now()


async def test_no_password_stands_in_an_error(postgres: PostgresGround) -> None:
    url = postgres.url.replace("perdure@", "perdure:s3cret@", 1).replace(postgres.url.split(":")[-1].split("/")[0], "1")
    with pytest.raises(StoreUnavailable) as caught:
        await PostgresStore(url).open()
    assert "s3cret" not in str(caught.value)


def test_the_driver_gives_a_sqlstate_to_every_error_of_the_server() -> None:
    assert asyncpg.DeadlockDetectedError.sqlstate == "40P01"


def test_what_a_server_does_not_support_is_told_beside_a_changed_schema() -> None:
    said = str(translated(asyncpg.FeatureNotSupportedError("no such thing here"), "here"))
    assert "Perdure tries again by itself" in said
    assert "use PostgreSQL 13 or later" in said
