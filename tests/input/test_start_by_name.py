"""A start by name: a program without the workflow's code starts it where a worker elsewhere hosts it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from perdure.authoring.start import NamedWorkflow
from perdure.authoring.workflow import workflow
from perdure.engine import Engine
from perdure.errors import InvalidKey, KeyConflict, PayloadError, UnknownKind
from tests.input.door import LIMIT


@workflow(name="elsewhere/order")
async def order(number: str, cents: int = 5) -> str:
    return f"{number} {cents}"


@workflow(name="elsewhere/tenancy", version="1")
async def tenancy_1() -> str:
    return "1"


@workflow(name="elsewhere/tenancy", version="2")
async def tenancy_2() -> str:
    return "2"


@workflow(name="elsewhere/versioned", version="7")
async def versioned() -> str:
    return "7"


@pytest.fixture
async def worker(store_url: str) -> AsyncIterator[Engine]:
    async with Engine(store_url, work=True, workflows=[order, tenancy_1, tenancy_2, versioned]) as engine:
        yield engine


@pytest.fixture
async def client(store_url: str, worker: Engine) -> AsyncIterator[Engine]:
    """A program that has none of the code."""
    async with Engine(store_url, workflows=[]) as engine:
        yield engine


async def test_a_name_is_enough_where_a_living_worker_hosts_it(client: Engine) -> None:
    handle = await client.start("elsewhere/order", "A-1", cents=7)
    assert await handle.result(LIMIT) == "A-1 7"
    assert await (await client.start("elsewhere/versioned")).result(LIMIT) == "7"
    with pytest.raises(UnknownKind, match=r"no workflow 'elsewhere/ordr' is known here"):
        await client.start("elsewhere/ordr", "A-1")
    with pytest.raises(UnknownKind, match=r"several versions.*version='1', version='2'"):
        await client.start("elsewhere/tenancy")


async def test_a_named_workflow_is_taken_at_its_word_and_has_options(client: Engine, worker: Engine) -> None:
    named = NamedWorkflow("elsewhere/order")
    first = await client.start(named.options(key="A-1"), "A-1", 7)
    again = await worker.start(order.options(key="A-1"), "A-1", 7)
    assert (first.created, again.created, again.id) == (True, False, first.id)
    with pytest.raises(KeyConflict):
        await client.start(named.options(key="A-1"), "A-1", 8)
    assert await first.result(LIMIT) == "A-1 7"
    assert await (await client.start(NamedWorkflow("elsewhere/tenancy", version="1"))).result(LIMIT) == "1"
    nobody = await client.start(NamedWorkflow("elsewhere/nobody"), 1)
    assert (await nobody.status()).kind == "elsewhere/nobody"
    with pytest.raises(PayloadError):
        await client.start(named, object())
    with pytest.raises(InvalidKey):
        NamedWorkflow("")


async def test_an_engine_that_hosts_it_starts_it_as_its_own(worker: Engine) -> None:
    assert await (await worker.start(NamedWorkflow("elsewhere/order"), "A-2")).result(LIMIT) == "A-2 5"
