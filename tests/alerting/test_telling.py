"""People are told once however many workers look, again only if it is not known that they were, and not in silence."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import json

from perdure import AlertRule, BlockingEngine, Engine, limits
from perdure.client.alerting.rules import AlertRuleView
from perdure.errors import InvalidInput, StoreUnavailable
from perdure.kernel.alerting import KeptAlertRule
from perdure.kernel.note import Note
from tests.alerting.conftest import LaterStore, Watching
from tests.alerting.looks import told
from tests.notices.server import Answering, Server
from tests.runtime.conftest import LIMIT, Open, until
from tests.source import PYTHONPATH

OUTAGE = AlertRule("outages", "outage")


def posted(server: Server) -> list[dict[str, Any]]:
    """What was posted, in order."""
    return [json.decode(one.body) for one in server.requests]


async def held(client: Engine, rule: AlertRule, *kinds: str) -> None:
    """There is a rule, and something to tell."""
    await client.alerts.add(rule)
    for kind in kinds:
        await client.outages.begin(kind, why="the bank is down")


def meets(store: LaterStore, others: asyncio.Barrier) -> None:
    """Who reads by this store goes on once the others have read as well."""

    async def after(door: str, argument: Any) -> None:
        if door == "records":
            store.after = _nothing
            await others.wait()

    store.after = after


async def test_of_two_workers_that_look_at_one_instant_one_tells_and_a_restart_tells_nothing_again(
    watching: Watching, server: Server
) -> None:
    one, first = await watching()
    two, second = await watching()
    await held(one, AlertRule("outages", "outage", to=server.url), "order", "bill")
    both = asyncio.Barrier(2)
    meets(first, both)
    meets(second, both)
    await asyncio.gather(one.alerts.look(), two.alerts.look())
    await asyncio.gather(one.alerts.look(), two.alerts.look())
    [message] = posted(server)
    assert (message["rule"], message["when"], message["status"], message["count"]) == ("outages", "outage", "firing", 2)
    assert sorted(fact["subject"] for fact in message["facts"]) == ["bill", "order"]
    await one.close(0)
    await two.close(0)
    three, store = await watching()
    for _ in range(3):
        store.ahead += 60
        await three.alerts.look()
    assert len(posted(server)) == 1


async def test_workers_that_are_given_a_rule_evaluate_it_together_and_one_without_hears_of_it(
    opened: Open, server: Server
) -> None:
    rule = AlertRule("outages", "outage", to=server.url, every=1)
    one, _ = await opened(work=True, workflows=[], alerts=[rule])
    two, _ = await opened(work=True, workflows=[], alerts=[rule])
    three, _ = await opened(work=True, workflows=[])
    await three.worker.supervisor.log.look()
    await one.outages.begin("order")
    for engine in (one, two, three):
        engine.worker.alert_rules.loop.wake()
    await until(lambda: server.requests)
    [view] = await one.alerts.list()
    assert (view.origin, view.when, view.to[0].split(":")[0]) == ("program", "outage", "http")
    seen = view.looked_at
    async with asyncio.timeout(LIMIT):
        while (await one.alerts.list())[0].looked_at == seen:
            three.worker.alert_rules.loop.wake()
            await asyncio.wait([asyncio.ensure_future(one.store.now())])
    assert len(posted(server)) == 1


async def test_a_worker_killed_between_sending_and_recording_has_its_message_sent_again_under_its_id(
    watching: Watching, server: Server, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, store = await watching()
    await held(client, AlertRule("outages", "outage", to=server.url), "order")
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.alerting.watcher", store_url, env=environment, stderr=asyncio.subprocess.DEVNULL
    )

    def kill() -> int:
        child.send_signal(signal.SIGKILL)
        return 200

    monkeypatch.setattr(server, "answers", Answering(kill))
    assert await asyncio.wait_for(child.wait(), 60) == -signal.SIGKILL
    monkeypatch.undo()
    await client.alerts.look()
    assert len(posted(server)) == 1, "the lease of the one that died holds"
    store.ahead += 120
    await client.alerts.look()
    store.ahead += 120
    await client.alerts.look()
    first, second = posted(server)
    assert first == second and {one.headers["Idempotency-Key"] for one in server.requests} == {first["id"]}


async def test_a_program_that_looks_while_its_worker_does_tells_nothing_twice(
    watching: Watching, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = await watching()
    await held(client, AlertRule("outages", "outage", to=server.url), "order")
    reached, goes_on = threading.Event(), threading.Event()

    def slowly() -> int:
        reached.set()
        goes_on.wait(LIMIT)
        return 200

    monkeypatch.setattr(server, "answers", Answering(slowly))
    first = asyncio.create_task(client.alerts.look())
    await asyncio.to_thread(reached.wait, LIMIT)
    second = asyncio.create_task(client.alerts.look())
    for _ in range(50):
        await client.store.now()
    goes_on.set()
    await asyncio.gather(first, second)
    assert len(posted(server)) == 1


async def test_where_a_look_takes_long_the_next_one_comes_later_but_within_ten_minutes(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ALERT_PAUSE_SECONDS", 1e9)
    client, store = await watching()
    await held(client, OUTAGE)
    seen = set()
    for _ in range(3):
        await client.alerts.look()
        seen.add((await client.alerts.list())[0].looked_at)
        store.ahead += 290
    assert len(seen) == 1
    await client.alerts.look()
    assert (await client.alerts.list())[0].looked_at not in seen


async def test_an_error_of_the_store_before_the_message_is_written_sends_nothing_and_the_same_worker_goes_on(
    watching: Watching, server: Server
) -> None:
    client, store = await watching()
    await held(client, AlertRule("outages", "outage", to=server.url), "order")
    writes = []

    async def away(door: str, argument: Any) -> None:
        if door == "records" and argument is Note:
            writes.append(door)
            if len(writes) == 4:  # all notes, the lease, the condition, what is found
                raise StoreUnavailable("away, as the test wants it")

    store.before = away
    with pytest.raises(StoreUnavailable):
        await client.alerts.look()
    assert posted(server) == []
    await client.alerts.look()
    assert len(posted(server)) == 1


async def test_a_rule_that_a_person_silences_while_a_worker_looks_tells_nothing(
    watching: Watching, server: Server
) -> None:
    client, store = await watching()
    person, _ = await watching()
    await held(client, AlertRule("outages", "outage", to=server.url), "order")
    reads = []

    async def silenced_meanwhile(door: str, argument: Any) -> None:
        reads.append(door)
        if reads.count("records") == 3:
            store.after = _nothing
            await person.alerts.silence("outages", last=3600)

    store.after = silenced_meanwhile
    await client.alerts.look()
    await client.alerts.look()
    assert posted(server) == []
    await person.alerts.silence("outages")
    await client.alerts.look()
    assert len(posted(server)) == 1, "what still is so when the silence ends is told"


async def _nothing(door: str, argument: Any) -> None:
    """Do nothing."""


async def test_a_rule_is_silent_until_a_time_or_in_hours_of_each_day_and_tells_afterwards(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    client, store = await watching()
    await held(client, OUTAGE, "order")
    until_then = datetime.now(UTC) + timedelta(hours=2)
    view = await client.alerts.silence("outages", until=until_then, who="ana", why="we know")
    assert abs(view.silenced_until - until_then) < timedelta(seconds=1) and view.who == "ana"
    await client.alerts.look()
    hour = (datetime.now(UTC) + timedelta(hours=3)).strftime("%H:%M")
    later = (datetime.now(UTC) + timedelta(hours=5)).strftime("%H:%M")
    view = await client.alerts.silence("outages", daily=[f"{hour}-{later}"])
    assert view.silenced_daily == [f"{hour}-{later} UTC"] and view.silenced_until is not None
    store.ahead += 4 * 3600
    await client.alerts.look()
    assert told(caplog) == []
    store.ahead += 2 * 3600
    await client.alerts.look()
    assert len(told(caplog)) == 1
    with pytest.raises(InvalidInput):
        await client.alerts.silence("outages", until=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(InvalidInput, match="Did you mean 'outages'"):
        await client.alerts.silence("outage")


async def test_a_rule_of_a_program_stands_once_and_gives_way_to_that_of_a_person(
    opened: Open, watching: Watching
) -> None:
    client, _ = await watching()
    await client.alerts.declare([OUTAGE])
    await client.alerts.declare([AlertRule("outages", "outage", per_hour=3)])
    assert (await client.alerts.list())[0].per_hour == 3, "the program was changed"
    await client.alerts.add(AlertRule("outages", "outage", per_hour=5), who="ana")
    await client.alerts.declare([OUTAGE])
    [view] = await client.alerts.list()
    assert (view.per_hour, view.who, view.origin) == (5, "ana", "client")
    await client.alerts.remove("outages")
    assert await client.alerts.list() == []
    with pytest.raises(InvalidInput, match="There are none"):
        await client.alerts.remove("outages")
    with pytest.raises(InvalidInput, match="Give an AlertRule"):
        await client.alerts.add("outages")


async def test_a_rule_that_a_person_adds_while_a_program_declares_another_stands(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = await watching()
    person, _ = await watching()
    plain = client.alerts._put

    async def late(*given: Any) -> AlertRuleView:
        await person.alerts.add(AlertRule("outages", "outage", per_hour=5), who="ana")
        return await plain(*given)

    monkeypatch.setattr(client.alerts, "_put", late)
    await client.alerts.declare([OUTAGE])  # it has seen that there is none
    [view] = await client.alerts.list()
    assert (view.per_hour, view.who, view.origin) == (5, "ana", "client")


async def test_a_rule_that_was_removed_tells_nothing_and_one_that_is_added_anew_begins_anew(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    client, _ = await watching()
    await held(client, OUTAGE, "order")
    await client.alerts.look()
    await client.alerts.remove("outages")
    await client.outages.begin("bill")
    await client.alerts.look()
    assert len(told(caplog)) == 1
    await client.alerts.add(OUTAGE)
    await client.alerts.look()
    assert len(told(caplog)) == 2
    notes = [one for one in await client.store.records(Note) if one.name == "alert rule outages"]
    assert len(notes) == 1 and notes[0].read(KeptAlertRule).plan is not None


def test_rules_are_added_tried_and_removed_without_an_event_loop(sqlite_url: str) -> None:
    with BlockingEngine(sqlite_url, migrate=True) as engine:
        engine.alerts.add(OUTAGE)
        engine.alerts.silence("outages", last=60)
        assert engine.alerts.test("outages").works and engine.alerts.look() > 0
        assert [view.name for view in engine.alerts.list()] == ["outages"]
        engine.alerts.remove("outages")
