"""What others have committed is looked at only by those whom it concerns, and only what was named of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.kernel.claim import Claim
from perdure.kernel.process import Process
from perdure.runtime.claimer import Claimer
from perdure.store.base import Search
from perdure.store.notifications import tails
from perdure.store.sqlite import watch
from perdure.testing.faults import FaultyStore
from tests.runtime.conftest import Open, until


@step(queue="post")
async def stamp(number: int) -> int:
    return number


@workflow
async def letters(count: int) -> int:
    for number in range(count):
        await stamp(number)
    return count


@workflow
async def parcel() -> None:
    await asyncio.sleep(3600)


def claims(store: FaultyStore) -> list[Claim]:
    """The claims made through a store so far."""
    return [claim for name, claim in store.calls if name == "claim"]


@pytest.fixture
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks by himself: an hour lies between the polls."""
    monkeypatch.setattr(Claimer, "_until", lambda claimer, answers: 3600.0)
    monkeypatch.setattr(Claimer, "soon", lambda claimer: None)
    monkeypatch.setattr(watch, "SQLITE_POLL_RUNG_SECONDS", 3600.0)


@pytest.mark.usefixtures("calm")
async def test_a_queued_step_is_claimed_by_its_name_and_by_those_only_who_serve_its_queue(opened: Open) -> None:
    asking, asked = await opened(work=True, workflows=[letters], queues=[])
    _, served = await opened(work=True, workflows=[], queues=["post"])
    other, idle = await opened(work=True, workflows=[parcel], queues=[])
    handle = await asking.start(letters, 1)
    assert await handle.result() == 1  # everybody has looked once by now
    for store in (asked, served, idle):
        store.calls.clear()
    handle = await asking.start(letters, 3)
    assert await handle.result() == 3
    assert [len(claim.among) for claim in claims(served)] == [1, 1, 1]
    assert claims(idle) == []
    assert claims(asked) == []
    assert other.worker is not None


async def test_what_is_being_claimed_or_is_nobodys_here_is_not_claimed(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[parcel])
    assert engine.worker is not None
    claimer = engine.worker.claimer
    await until(lambda: not claimer._all)
    one, other = engine.machine.new_id(), engine.machine.new_id()
    claimer._asking = (one,)
    claimer.named([parcel.name], [one])
    claimer.named(["of nobody here"], [other])
    assert (claimer._named, claimer._all) == ({}, False)
    claimer.named([parcel.name, "of nobody here"], [one, other])
    assert list(claimer._named) == [other]


async def test_a_client_looks_only_for_what_it_waits_for(opened: Open) -> None:
    client, store = await opened()
    row = Process(client.machine.new_id(), parcel.name, None, b"[]")
    waiting = asyncio.ensure_future(client.parts.results.wait(row.id, here=False))
    await until(lambda: client.parts.results._look_at > 0)
    store.calls.clear()
    client.parts.results.named(tails([client.machine.new_id() for _ in range(50)]))
    assert client.parts.results._named == {}
    client.parts.results.named(tails([client.machine.new_id(), row.id]))
    await until(lambda: store.calls)
    name, search = store.calls[0]
    assert (name, search.ids) == ("search", (row.id,))
    assert isinstance(search, Search)
    waiting.cancel()


async def test_more_due_than_can_be_named_are_looked_for(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[letters], queues=["post"])
    assert engine.worker is not None
    claimer: Any = engine.worker.claimer
    await until(lambda: not claimer._all)
    store.calls.clear()
    claimer.named(["@post"], ())
    await until(lambda: claims(store))
    assert claims(store)[0].among == ()
