"""Each condition of a rule is found where it is so, on both stores, and is told once."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from perdure import AlertRule, Engine, limits
from perdure.client.alerting import conditions
from perdure.client.alerting.conditions import AlertQuestion
from perdure.clock import microseconds
from perdure.errors import InvalidInput, ProcessBroken, UnreadablePayload
from perdure.kernel import alerting
from perdure.kernel.breaker import HALF_OPEN, OPEN, Circuit
from perdure.kernel.note import Note
from perdure.kernel.sweep_pass import PREFIX, Passes
from tests.alerting import shop
from tests.alerting.conftest import LaterStore, Watching
from tests.alerting.looks import broken, failed, told
from tests.runtime.conftest import LIMIT, Open, until_row


async def looked(engine: Engine, store: LaterStore, times: int = 2) -> None:
    """The rules have been looked at so often, each time when they were due."""
    for _ in range(times):
        await engine.alerts.look()
        store.ahead += 60


async def test_processes_that_are_broken_are_told_by_kind_once_and_those_that_come_later_too(
    opened: Open, watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    worker, _ = await opened(work=True, workflows=[shop])
    await broken(worker, "A-1", "A-2")
    client, store = await watching()
    await client.alerts.add(AlertRule("night", "broken"))
    store.ahead = limits.ALERT_SETTLED_SECONDS  # what is so now counts, and what comes is later
    await client.alerts.look()
    [first] = told(caplog)
    assert first.startswith("alert night: 2 processes of shipping are broken (") and "A-1" in first
    await broken(worker, "A-3")
    store.ahead += 60
    await looked(client, store)
    assert told(caplog)[1].startswith("alert night: 3 processes of shipping are broken, 1 of them since")
    [view] = await client.alerts.list()
    assert [(one.subject, one.count) for one in view.active] == [("shipping", 3)]
    assert len(told(caplog)) == 2


@pytest.mark.parametrize("when", ["broken", "failures"])
async def test_what_a_person_changes_of_a_broken_process_is_no_new_breakage(opened: Open, when: Any) -> None:
    engine, store = await opened(work=True, workflows=[shop])
    await broken(engine, "A-1", "A-2")
    plan, state = AlertRule("night", when, at_least=2).plan(), alerting.AlertState()

    async def texts() -> list[str]:
        nonlocal state
        now = await store.now() + microseconds(limits.ALERT_SETTLED_SECONDS)
        found = await conditions.look(AlertQuestion(store, plan, state.upto, 0, now))
        state = state.found(plan, found, now, silenced=False)
        return [delivery.message.text for delivery in state.outbox]

    assert len(await texts()) == 1
    handle, before = await engine.handle("shipping", "A-1"), await store.now()
    await handle.set_priority(1, who="ana")
    await handle.edit_attributes({"customer": "C-1"}, who="ana")
    now = before + microseconds(limits.ALERT_SETTLED_SECONDS)
    [fact] = (await conditions.look(AlertQuestion(store, plan, state.upto, 0, now))).facts
    assert (fact.count, fact.fresh) == (2, 0), "what a person has changed a moment ago is not away meanwhile"
    assert len(await texts()) == 1
    await handle.retry(who="ana")
    with pytest.raises(ProcessBroken):
        await handle.result(LIMIT)
    await handle.set_priority(2, who="ana")
    _, second = await texts()
    assert "2 processes of shipping" in second and "1 of them since the last message" in second


async def test_an_old_failure_that_a_person_has_changed_many_times_is_not_one_of_the_last_hour(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, store = await opened(work=True, workflows=[shop])
    await broken(engine, "A-1", "A-2")
    edited = await store.now()
    handle = await engine.handle("shipping", "A-1")
    for priority in range(5):
        await handle.set_priority(priority, who="ana")
    plan, now = AlertRule("alike", "failures", at_least=1).plan(), await store.now()
    plan = replace(plan, within=now + microseconds(limits.ALERT_SETTLED_SECONDS) - edited)
    for read in (20, 2):
        monkeypatch.setattr(conditions, "EDITED", read)
        asked = AlertQuestion(store, plan, 0, 0, now + microseconds(limits.ALERT_SETTLED_SECONDS))
        facts = (await conditions.look(asked)).facts
        assert len(facts) == (read == 2), "what is not known counts as of the oldest event that was read"


async def test_a_query_narrows_a_rule_and_a_saved_search_keeps_what_it_meant(
    opened: Open, watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    worker, _ = await opened(work=True, workflows=[shop])
    await broken(worker, "A-1", "B-1")
    client, store = await watching()
    await client.searches.save("mine", "key = A-*")
    await client.alerts.add(AlertRule("night", "broken", where="@mine"))
    await client.searches.save("mine", "key = nobody")
    await looked(client, store)
    assert told(caplog) == ["alert night: 1 process of shipping is broken (A-1)"]
    with pytest.raises(InvalidInput):
        await client.alerts.add(AlertRule("other", "broken", where="kind ="))


async def test_processes_that_nobody_looks_at_in_time_are_overdue(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    client, store = await watching()
    await client.start(shop.waiting.options(key="W-1"))
    await client.alerts.add(AlertRule("late", "overdue", lasting=300, resolved=True))
    await looked(client, store)
    assert told(caplog) == []
    store.ahead += 600
    await looked(client, store)
    assert told(caplog) == ["alert late: 1 process of waiting is overdue by more than 5 min (W-1)"]


async def test_processes_that_become_overdue_while_others_are_so_already_are_told_once(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    client, store = await watching()
    await client.start(shop.waiting.options(key="W-1"))
    await client.alerts.add(AlertRule("late", "overdue", lasting=300))
    store.ahead += 600
    await looked(client, store)
    for key in ("W-2", "W-3"):
        await client.start(shop.waiting.options(key=key, delay=900))
    await looked(client, store)
    store.ahead += 1500
    await looked(client, store, 3)
    texts = [text.partition(" (")[0] for text in told(caplog)]
    assert texts == [
        "alert late: 1 process of waiting is overdue by more than 5 min",
        "alert late: 3 processes of waiting are overdue by more than 5 min, 2 of them since the last message",
    ]


async def test_a_queue_that_no_worker_serves_is_told_once_it_has_been_so_for_long_enough(
    opened: Open, watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    worker, _ = await opened(work=True, workflows=[shop.labelling], queues=[])
    handle = await worker.start(shop.labelling, "A-1")
    await until_row(worker, handle.id, lambda row: row.owner is None)
    client, store = await watching()
    await client.alerts.add(AlertRule("queues", "unpolled", lasting=30))
    await client.alerts.look()
    assert told(caplog) == []
    store.ahead += 60
    await looked(client, store)
    assert told(caplog) == ["alert queues: steps wait in queue printer, and no live worker serves them"]


async def test_many_failures_with_one_fingerprint_are_told_and_few_are_not(
    opened: Open, watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    worker, _ = await opened(work=True, workflows=[shop])
    await failed(worker, "A-1", "A-2")
    client, store = await watching()
    await client.alerts.add(AlertRule("alike", "failures", at_least=3, within=3600, resolved=True))
    await looked(client, store)
    assert told(caplog) == []
    await failed(worker, "A-3")
    await looked(client, store)
    [first] = told(caplog)
    [group] = await client.failures()
    assert "3 processes of paying by BankDown in step alerting/pay failed within 1 h" in first
    assert f"fingerprint {group.fingerprint}" in first and "no answer" not in first, "an error's text may be sealed"
    store.ahead += 4000
    await looked(client, store)
    assert told(caplog)[1:] == [f"alert alike is resolved: no longer: {group.fingerprint}"]


async def test_failures_that_come_while_older_ones_count_are_told_once(
    opened: Open, watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    worker, _ = await opened(work=True, workflows=[shop])
    await failed(worker, "A-1", "A-2")
    client, store = await watching()
    await client.alerts.add(AlertRule("alike", "failures", at_least=2, within=3600))
    store.ahead = limits.ALERT_SETTLED_SECONDS  # what is so now counts, and what comes is later
    await client.alerts.look()
    await failed(worker, "A-3")
    store.ahead += 60
    await looked(client, store, 3)
    first, second = told(caplog)
    assert "2 processes of paying by BankDown in step alerting/pay failed within 1 h" in first
    assert "3 processes of paying" in second and "1 of them since the last message" in second


async def test_an_operation_that_has_ended_and_one_that_has_relapsed_are_told_once_each(
    opened: Open, watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    worker, _ = await opened(work=True, workflows=[shop])
    await failed(worker, "A-1", "A-2")
    before = await worker.operations.start("retry", "key = nobody", watch=0)
    await before.result(LIMIT)
    await worker.alerts.add(AlertRule("done", "operation-finished"))
    await worker.alerts.add(AlertRule("again", "operation-relapsed", at_least=2))
    operation = await worker.operations.start("retry", "status = failed and kind = paying", watch=0.5)
    assert (await operation.result(LIMIT)).relapsed == 2
    client, store = await watching()
    await looked(client, store, 3)
    said = f"operation {operation.id} (retry) is done: 2 done, 2 relapsed"
    assert sorted(told(caplog)) == [f"alert again: {said}", f"alert done: {said}"]


async def test_a_relapsed_operation_is_told_however_many_have_relapsed_before_and_each_is_told_once(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerting, "SUBJECTS", 1)
    engine, store = await opened(work=True, workflows=[shop])
    plan, state, said = AlertRule("again", "operation-relapsed").plan(), alerting.AlertState(), []
    for order in ("A-1", "A-2", "A-3"):
        await failed(engine, order)
        operation = await engine.operations.start("retry", f"key = {order}", watch=0.5)
        assert (await operation.result(LIMIT)).relapsed == 1
        said.append(f"operation {operation.id} (retry) is done: 1 done, 1 relapsed")
        for _ in range(3):
            now = await store.now() + microseconds(limits.ALERT_SETTLED_SECONDS)
            found = await conditions.look(AlertQuestion(store, plan, state.upto, 0, now))
            state = state.found(plan, found, now, silenced=False)
        assert [delivery.message.text for delivery in state.outbox] == said


async def test_a_healer_that_is_silent_is_told_as_a_whole_and_a_sweep_by_its_name(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    client, store = await watching()
    await client.alerts.add(AlertRule("healer", "sweep-silent", resolved=True))
    await looked(client, store, 1)
    assert told(caplog) == [], "none could have passed yet since the rule was added"
    store.ahead += 60
    await looked(client, store)
    [whole] = told(caplog)
    assert whole.startswith("alert healer: no sweep has passed for ") and "nothing that is stuck" in whole
    now = await store.now()
    notes = [Note(f"{PREFIX}owner gone").next(Passes(at=now, alarmed_at=now + 1), now)]
    await store.records(Note, notes)
    await looked(client, store, 1)
    assert told(caplog)[1] == (
        "alert healer: the sweep owner gone does not pass: what it would find stays stuck; no longer: all sweeps"
    )


async def test_time_in_which_nobody_looked_is_no_silence_of_the_sweeps(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    client, store = await watching()
    await client.alerts.add(AlertRule("healer", "sweep-silent"))
    await looked(client, store, 1)
    store.ahead += 600
    await looked(client, store, 1)
    assert told(caplog) == [], "the database was away, or no worker was there"
    store.ahead += 30
    await looked(client, store)
    [silent] = told(caplog)
    assert silent.startswith("alert healer: no sweep has passed for ")


async def test_a_kind_that_is_held_as_an_outage_is_told_and_so_is_its_end(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    client, store = await watching()
    await client.alerts.add(AlertRule("outages", "outage", resolved=True))
    await client.outages.begin("paying", why="the bank has told us")
    await looked(client, store)
    await client.outages.end("paying")
    await looked(client, store)
    assert told(caplog) == [
        "alert outages: paying is held as an outage: the bank has told us",
        "alert outages is resolved: no longer: paying",
    ]


async def test_a_breaker_that_is_open_is_told_once_and_so_is_its_end(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    client, store = await watching()
    other, _ = await watching()
    await client.alerts.add(AlertRule("dependencies", "breaker-open", resolved=True))
    now = await store.now()
    since = {"since": now, "until": now, "reason": "5 attempts have failed: BankDown"}
    await store.records(Circuit, [Circuit("bank", version=1, state=OPEN, **since)])
    await store.records(Circuit, [Circuit("post", version=1, reason="a probe was served")])
    await looked(client, store)
    await store.records(Circuit, [Circuit("bank", version=2, state=HALF_OPEN, probes=1, **since)])
    await looked(client, store)
    await other.alerts.look()
    [first] = told(caplog)
    assert first == "alert dependencies: breaker bank is open (5 attempts have failed: BankDown)"
    [view] = await client.alerts.list()
    assert [one.subject for one in view.active] == ["bank"], "a probe is under way, and nobody knows yet how it ends"
    await client.breakers.reset("bank")
    await looked(client, store)
    assert told(caplog)[1:] == ["alert dependencies is resolved: no longer: bank"]


async def test_a_breaker_that_opens_and_closes_in_silence_is_never_told_and_one_that_stays_open_is_told_afterwards(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    client, store = await watching()
    await client.alerts.add(AlertRule("dependencies", "breaker-open", resolved=True))
    await client.alerts.silence("dependencies", last=3600)
    await client.breakers.open("bank", who="ana", why="it moves")
    await client.breakers.open("post", who="ana")
    await looked(client, store)
    await client.breakers.reset("bank")
    await looked(client, store)
    assert told(caplog) == []
    store.ahead += 3600
    await looked(client, store)
    assert told(caplog) == ["alert dependencies: breaker post is kept open by ana"]


async def test_a_condition_that_cannot_be_looked_at_is_logged_once_and_shown_and_keeps_no_other_waiting(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    client, store = await watching()
    row = await client.operations.start("hold", "key = nobody")
    await client.alerts.add(AlertRule("a", "operation-relapsed"))
    await client.alerts.add(AlertRule("b", "outage"))
    await client.outages.begin("paying")

    async def damaged(door: str, argument: Any) -> None:
        if door == "search":
            raise UnreadablePayload(f"operation {row.id} cannot be read")

    store.before = damaged
    await looked(client, store, 3)
    assert len([one for one in caplog.records if "cannot be looked at" in one.getMessage()]) == 1
    assert len(told(caplog)) == 1
    assert [view.error for view in await client.alerts.list()] == [f"operation {row.id} cannot be read", ""]
