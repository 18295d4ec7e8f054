"""Outages, as the database does not answer once it has written: nothing counts twice, and people are told."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Alert, Engine
from perdure.errors import StoreUnavailable
from perdure.kernel.breaker import Probed
from perdure.kernel.failure import Failure
from perdure.kernel.note import Note
from perdure.kernel.outage import PREFIX, OutageState
from perdure.kernel.process import Process, Status
from perdure.runtime.outages import OutageWatch
from perdure.testing.faults import FaultyStore
from tests.runtime.conftest import Open, until
from tests.runtime.test_outages import canaries_may_go, worker

ERROR = Failure("BankDown", "no answer").encode()


async def watching(opened: Open, told: list[Alert], **rule: Any) -> tuple[Engine, FaultyStore, OutageWatch]:
    """A worker with a rule for orders, which looks only when the test says so."""
    engine, store = await opened(**worker(**rule), on_alert=told.append)
    watch = engine.worker.outages
    await watch.loop.stop()
    return engine, store, watch


def fail(watch: OutageWatch, many: int) -> None:
    """So many orders fail."""
    for _ in range(many):
        watch.ended(Process(bytes(16), "order", None, b"[]", status=Status.FAILED, error=ERROR), 0.0)


async def look_unanswered(store: FaultyStore, watch: OutageWatch) -> None:
    """Look, and write what follows; the answer to that is lost."""
    before = await state(store)

    async def after(name: str, argument: Any) -> None:
        if argument is Note and await state(store) != before:
            store.after = nothing
            raise StoreUnavailable("the answer was lost")

    store.after = after
    with pytest.raises(StoreUnavailable):
        await watch.look()


async def look_cut_off(store: FaultyStore, watch: OutageWatch) -> None:
    """Look, and write nothing: the database goes away just before."""

    async def before(name: str, argument: Any) -> None:
        if argument is Note and watch._tried:  # what follows is about to be written
            store.before = nothing
            raise StoreUnavailable("cut off")

    store.before = before
    with pytest.raises(StoreUnavailable):
        await watch.look()


async def nothing(name: str, argument: Any) -> None:
    """Nothing goes wrong any more."""


async def state(store: FaultyStore) -> OutageState:
    """How the outage of orders stands."""
    notes = {note.name: note for note in await store.store.records(Note)}
    return notes.get(f"{PREFIX}order", Note("")).read(OutageState)


async def test_failures_whose_answer_was_lost_are_not_counted_twice(opened: Open) -> None:
    told: list[Alert] = []
    _, store, watch = await watching(opened, told, failures=4)
    fail(watch, 2)
    await look_unanswered(store, watch)
    await watch.look()
    now = await state(store)
    assert not now.held and [count.number for count in now.counts.values()] == [2]
    fail(watch, 2)
    await watch.look()
    assert (await state(store)).held


async def test_failures_that_were_not_written_are_counted_later(opened: Open) -> None:
    _, store, watch = await watching(opened, [], failures=4)
    fail(watch, 2)
    await look_cut_off(store, watch)
    fail(watch, 1)
    await watch.look()
    assert [count.number for count in (await state(store)).counts.values()] == [3]


async def test_failures_that_were_not_written_are_counted_although_another_worker_has_written_since(
    opened: Open,
) -> None:
    _, store, watch = await watching(opened, [], failures=5)
    _, _, other = await watching(opened, [], failures=5)
    fail(watch, 2)
    await look_cut_off(store, watch)
    fail(other, 1)
    await other.look()
    await watch.look()
    assert [count.number for count in (await state(store)).counts.values()] == [3]


async def test_failures_are_not_counted_twice_although_another_worker_has_written_since(opened: Open) -> None:
    _, store, watch = await watching(opened, [], failures=5)
    _, _, other = await watching(opened, [], failures=5)
    fail(watch, 2)
    await look_unanswered(store, watch)
    fail(other, 1)
    await other.look()
    await watch.look()
    assert [count.number for count in (await state(store)).counts.values()] == [3]


async def test_an_outage_whose_begin_was_not_answered_is_told_of_once(opened: Open) -> None:
    told: list[Alert] = []
    _, store, watch = await watching(opened, told, failures=4)
    fail(watch, 4)
    await look_unanswered(store, watch)
    for _ in range(3):
        await watch.look()
    assert watch.holds("order")
    await until(lambda: told)
    assert [alert.kind for alert in told] == ["outage"] and "4 processes have failed alike" in told[0].text


async def test_an_outage_whose_begin_was_not_answered_is_told_of_although_its_note_was_written_over(
    opened: Open,
) -> None:
    told: list[Alert] = []
    engine, store, watch = await watching(opened, told, failures=4)
    fail(watch, 4)
    await look_unanswered(store, watch)
    await canaries_may_go(engine)
    for _ in range(3):
        await watch.look()
    await until(lambda: told)
    assert [alert.kind for alert in told] == ["outage"] and "4 processes have failed alike" in told[0].text


async def test_an_outage_that_has_ended_before_it_is_known_who_began_it_is_not_told_of(opened: Open) -> None:
    told: list[Alert] = []
    engine, store, watch = await watching(opened, told, failures=4)
    fail(watch, 4)
    await look_unanswered(store, watch)
    await engine.outages.end("order")
    await watch.look()
    fail(watch, 4)
    await watch.look()
    await until(lambda: told)
    assert [alert.id for alert in told] == ["outage:order:3"], "only of the next one"


async def test_a_canary_whose_end_was_not_answered_counts_once_and_one_that_was_granted_may_go(opened: Open) -> None:
    engine, store, watch = await watching(opened, [], failures=4, canaries=2)
    fail(watch, 4)
    await watch.look()
    await canaries_may_go(engine)
    await look_unanswered(store, watch)
    await watch.look()
    circuit = (await state(store)).circuit
    assert (circuit.state, circuit.probes) == ("half-open", 1)
    assert [many for _, many, _ in watch.offers()] == [1], "the canary that was granted may be claimed"
    watch._granted.clear()
    watch._probed = {"order": [Probed(True, circuit.opened)]}
    await look_unanswered(store, watch)
    await watch.look()
    circuit = (await state(store)).circuit
    assert (circuit.state, circuit.successes) == ("half-open", 1)
