"""Outages: a kind of which many processes fail alike is held, tried by canaries, and let go little by little."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import Alert, Engine, PerdureError, Retry, WorkerOptions, limits, settings, step, workflow
from perdure.errors import DefinitionError, InvalidKey
from perdure.kernel.breaker import Probed
from perdure.kernel.failure import Failure
from perdure.kernel.note import Note
from perdure.kernel.outage import PREFIX, Canary, FailedAlike, OutageRule, OutageState
from perdure.kernel.process import Process, Status
from tests.runtime.conftest import LIMIT, Open, until, until_row

SECOND = 1_000_000
down: set[str] = set()
ran: list[str] = []


@pytest.fixture(autouse=True)
def _anew() -> None:
    down.clear()
    ran.clear()


class BankDown(Exception):
    """The bank does not answer."""


@step(retry=Retry(attempts=1))
async def pay(order: str) -> str:
    ran.append(order)
    if "bank" in down:
        raise BankDown(f"no answer for {order}")
    return f"{order} is paid"


@step(retry=Retry(attempts=9, first=900.0, cap=900.0))
async def pay_patiently(order: str) -> str:
    return await pay.function(order)  # type: ignore[no-any-return]


@workflow
async def order(order: str) -> str:
    if order.startswith("patient"):
        return await pay_patiently(order)
    return await pay(order)


@workflow
async def greeting(name: str) -> str:
    return f"hello {name}"


def worker(**rule: Any) -> dict[str, Any]:
    """The settings of a worker with such a rule for orders."""
    rules = {"order": {"failures": 3, "open_for": 3600.0, **rule}}
    return {"work": True, "workflows": [order, greeting], "options": WorkerOptions(outages=rules)}


async def broken_down(engine: Engine, many: int = 3) -> None:
    """So many orders have failed, and the kind is held."""
    down.add("bank")
    for number in range(many):
        with pytest.raises(PerdureError):
            await (await engine.start(order, f"F-{number}")).result()
    await held(engine)
    ran.clear()


async def held(engine: Engine) -> None:
    """Wait until the worker holds the kind."""
    worker = engine.worker
    assert worker is not None
    worker.outages.loop.wake()
    await until(lambda: worker.outages.holds("order"))


async def canaries_may_go(engine: Engine) -> None:
    """The time of the canaries has come: as if open_for had passed."""
    store = engine.store
    [note] = [note for note in await store.records(Note) if note.name == f"{PREFIX}order"]
    state, now = note.read(OutageState), await store.now()
    early = replace(state, circuit=replace(state.circuit, until=now))
    change = note.next(early, now)
    assert change in await store.records(Note, [change])
    engine.worker.outages.loop.wake()


async def test_a_kind_of_which_many_fail_alike_is_held_and_told_of_once_while_others_go_on(opened: Open) -> None:
    told: list[Alert] = []
    one, _ = await opened(**worker(), on_alert=told.append)
    two, _ = await opened(**worker(), on_alert=told.append)
    await broken_down(one)
    await held(two)
    waits = await one.start(order, "A-1")
    assert await (await two.start(greeting, "Ann")).result() == "hello Ann"
    row = await one.row(waits.id)
    assert (row.status, row.owner, ran) == (Status.RUNNING, None, [])
    [view] = await one.outages.list()
    assert view.held and view.kind == "order" and "3 processes have failed alike: BankDown" in view.reason
    [failed] = await one.failures()
    assert view.fingerprint == failed.fingerprint
    begun = [alert for alert in told if alert.kind == "outage"]
    assert len(begun) == 1 and "order has an outage" in begun[0].text


async def test_canaries_end_the_outage_when_the_bank_is_back_and_all_that_waits_goes_on(opened: Open) -> None:
    told: list[Alert] = []
    engine, _ = await opened(**worker(), on_alert=told.append)
    await broken_down(engine)
    handles = [await engine.start(order, f"A-{number}") for number in range(5)]
    await canaries_may_go(engine)
    await until(lambda: ran)
    await until_row(engine, handles[0].id, lambda row: row.status is Status.FAILED)
    async with asyncio.timeout(LIMIT):
        while "a canary has failed: BankDown" not in (await engine.outages.list())[0].reason:
            engine.worker.outages.loop.wake()
    assert ran == ["A-0"], "one canary, and nothing else"
    down.clear()
    await canaries_may_go(engine)
    assert [await handle.result() for handle in handles[1:]] == [f"A-{number} is paid" for number in range(1, 5)]
    view = (await engine.outages.list())[0]
    assert not view.held and "canary was served" in view.reason
    assert [change[1] for change in view.changes] == ["open", "half-open", "open", "half-open", "closed"]
    assert [alert.text.split(" (")[0] for alert in told if alert.kind == "outage"] == [
        "order has an outage",
        "the outage of order is over",
    ]


async def test_a_canary_that_waits_for_another_attempt_of_its_step_has_failed(opened: Open) -> None:
    engine, _ = await opened(**worker())
    await broken_down(engine)
    handle = await engine.start(order, "patient")
    await canaries_may_go(engine)
    await until_row(engine, handle.id, lambda row: row.owner is None and row.awaiting)
    async with asyncio.timeout(LIMIT):
        while (view := (await engine.outages.list())[0]).changes[-1][1] == "half-open":
            engine.worker.outages.loop.wake()
    assert view.held and view.reason == "a canary has failed: step pay_patiently is to be tried again"
    assert ran == ["patient"]


def test_what_became_of_a_canary_that_was_let_go_is_read_from_its_row() -> None:
    row = Process(bytes(16), "order", None, b"[]", due_at=9, events=4)
    assert Canary("order", 2, 4).told(replace(row, owner=bytes(16)), 5) is None, "another worker has it"
    assert Canary("order", 2, 4).told(row, 9) is None, "it is due again"
    assert Canary("order", 2, 4).told(row, 5) is None, "it has done nothing: it waits for the rest of its timer"
    assert Canary("order", 2, 3).told(row, 5) == Probed(True, 2)
    begun = replace(row, events=0, awaiting="timer")
    assert Canary("order", 2, 0).told(begun, 5) == Probed(True, 2), "a new one may begin by waiting"
    barred = replace(row, awaiting="timer, breaker bank")
    assert Canary("order", 2, 3).told(barred, 5) == Probed(False, 2, "timer, breaker bank is to be tried again")
    assert Canary("order", 2, 4).told(replace(row, status=Status.COMPLETED), 5) == Probed(True, 2)
    failed = replace(row, status=Status.FAILED, error=Failure("BankDown", "no answer").encode())
    assert Canary("order", 2, 4).told(failed, 5) == Probed(False, 2, "BankDown")
    assert Canary("order", 2, 4).told(replace(row, status=Status.HELD), 5) is None, "nobody knows"


async def test_a_person_begins_and_ends_an_outage_of_workers_without_rules(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[order, greeting])
    view = await engine.outages.begin("order", who="Ann", why="the bank has told us")
    assert view.held and view.reason == "the bank has told us" and view.until is None
    await engine.worker.supervisor.log.look()
    handle = await engine.start(order, "A-1")
    assert await (await engine.start(greeting, "Ann")).result() == "hello Ann"
    assert ran == [] and (await engine.row(handle.id)).owner is None
    await engine.outages.end("order", who="Ann")
    assert await handle.result() == "A-1 is paid"
    with pytest.raises(InvalidKey):
        await engine.outages.begin("")


async def test_an_outage_that_stands_holds_on_a_worker_that_begins_later_from_its_first_claim_on(opened: Open) -> None:
    client, _ = await opened()
    await client.outages.begin("order", who="Ann", why="a backup was restored")
    handle = await client.start(order, "A-1")
    engine, _ = await opened(work=True, workflows=[order, greeting])
    assert engine.worker.outages.holds("order")
    assert await (await engine.start(greeting, "Ann")).result() == "hello Ann"
    assert ran == [] and (await engine.row(handle.id)).owner is None


async def test_the_canary_of_a_worker_that_died_is_given_up_and_another_worker_ends_the_outage(opened: Open) -> None:
    one, _ = await opened(**worker(open_for=0.001))
    await broken_down(one)
    await one.close(0)
    down.clear()
    client, store = await opened()
    [note] = await store.records(Note)
    rule, now = OutageRule(failures=3, open_for=0.001), await store.now()
    granted = note.next(rule.probing(note.read(OutageState), now), now)
    assert granted in await store.records(Note, [granted])  # and the worker that has granted it dies here
    handle = await client.start(order, "A-1")
    await opened(**worker(open_for=0.001))
    assert await handle.result(timeout=10) == "A-1 is paid"


async def test_failures_during_an_outage_do_not_count_towards_the_next_one_whatever_other_kinds_do(
    opened: Open,
) -> None:
    rules = {"order": {"failures": 3, "open_for": 3600.0}, "greeting": {"failures": 9}}
    options = WorkerOptions(outages=rules)
    engine, store = await opened(work=True, workflows=[order, greeting], options=options)
    watch = engine.worker.outages
    await watch.loop.stop()
    await engine.outages.begin("order", who="Ann")
    error = Failure("BankDown", "no answer").encode()
    for kind in ("order", "order", "order", "greeting"):  # the orders were under way as it began
        watch.ended(Process(bytes(16), kind, None, b"[]", status=Status.FAILED, error=error), 0.0)
    await watch.look()
    await engine.outages.end("order", who="Ann")
    await watch.look()
    assert [view.held for view in await engine.outages.list() if view.kind == "order"] == [False]
    notes = {note.name: note.read(OutageState) for note in await store.records(Note)}
    assert notes[f"{PREFIX}order"].counts == {}
    assert [count.number for count in notes[f"{PREFIX}greeting"].counts.values()] == [1]


def test_what_waits_is_let_go_few_at_first_and_then_without_limit() -> None:
    rule = OutageRule(failures=2, within=60, open_for=10)
    state = rule.failed(OutageState(), {"f": FailedAlike(1, "BankDown"), "g": FailedAlike(1, "Other")}, 1)
    assert not state.held, "they do not fail alike"
    state = rule.failed(state, {"f": FailedAlike(1, "BankDown")}, 61 * SECOND + 2)
    assert not state.held, "the first was too long ago"
    state = rule.failed(state, {"f": FailedAlike(1, "BankDown")}, 62 * SECOND)
    assert state.held and state.allowance(62 * SECOND) == 0
    assert rule.probing(state, 71 * SECOND) is None
    half = rule.probing(state, 72 * SECOND)
    assert half is not None and rule.probing(half, 73 * SECOND) is None
    assert rule.probed(half, Probed(True, half.circuit.opened + 1), 74 * SECOND) == half, "a canary of another time"
    longer = rule.probed(half, Probed(False, half.circuit.opened, "BankDown"), 74 * SECOND)
    assert longer.circuit.until == 94 * SECOND
    over = rule.probed(half, Probed(True, half.circuit.opened), 74 * SECOND)
    seconds = limits.OUTAGE_DOUBLED_SECONDS
    after = [over.allowance(74 * SECOND + int(n * seconds * SECOND)) for n in (0, 1, 2, 9, 10)]
    assert after == [1, 2, 4, 512, None]


@pytest.mark.parametrize(
    "wrong", [{"failures": 0}, {"canaries": 0}, {"within": -1}, {"open_for": "soon"}, {"factor": 0}]
)
def test_a_rule_that_makes_no_sense_is_refused_in_its_own_words(wrong: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=rf"OutageRule\({next(iter(wrong))}="):
        OutageRule(**wrong)


@pytest.mark.parametrize("wrong", [7, {"order": 20}, {"order": {"failure": 20}}, {"order": {"failures": "many"}}])
def test_rules_that_make_no_sense_are_refused_before_a_worker_begins(wrong: Any) -> None:
    with pytest.raises(DefinitionError, match=r"outage|OutageRule"):
        Engine("sqlite:///:memory:", work=True, options=WorkerOptions(outages=wrong))


def test_rules_of_the_file_count_more_than_those_of_the_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "perdure.toml").write_text('[outages.order]\nfailures = 7\n[outages."@bank"]\nopen_for = 5\n')
    monkeypatch.chdir(tmp_path)
    rules = settings.outages({"order": {"failures": 3}, "bill": {}})
    assert {kind: rule.breaker.failures for kind, rule in rules.items()} == {"order": 7, "bill": 20, "@bank": 20}
    assert rules["@bank"].breaker.open_for == 5
