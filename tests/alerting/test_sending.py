"""A place that does not answer holds up no other rule, and a look that is cancelled tells nothing twice."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from perdure import AlertRule, Engine, limits
from perdure.kernel.alerting import rule_of
from perdure.kernel.note import Note
from tests.alerting.conftest import Watching
from tests.alerting.looks import told
from tests.notices.server import Answering, Server
from tests.runtime.conftest import LIMIT, Open, until


async def leased(client: Engine) -> list[str]:
    """Who is at the rules."""
    return [kept.state.by for note in await client.store.records(Note) if (kept := rule_of(note)) is not None]


async def waiting(client: Engine) -> list[int]:
    """How many messages of each rule wait."""
    return [view.waiting for view in await client.alerts.list()]


async def test_places_of_all_rules_are_told_at_once_and_none_waits_for_one_that_does_not_answer(
    watching: Watching, server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = await watching()
    for name in ("a", "b"):
        await client.alerts.add(AlertRule(name, "outage", to=server.url))
    await client.alerts.add(AlertRule("c", "outage"))
    await client.outages.begin("order", why="the bank is down")
    both = threading.Barrier(2, timeout=LIMIT)
    said = threading.Event()

    def answer() -> int:
        both.wait()
        return 200 if said.wait(LIMIT) else 503

    monkeypatch.setattr(server, "answers", Answering(answer))
    look = asyncio.create_task(client.alerts.look())
    await until(lambda: told(caplog))
    said.set()  # the log has heard of it though no URL has answered
    await look
    assert await waiting(client) == [0, 0, 0] and len(server.requests) == 2
    assert not any(await leased(client))


async def test_what_cannot_begin_while_its_lease_holds_waits_for_the_next_look(
    watching: Watching, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ALERT_DELIVERY_RECORDS", 1)
    monkeypatch.setattr(limits, "ALERT_BEGIN_SECONDS", 0.0)
    client, _ = await watching()
    await client.alerts.add(AlertRule("outages", "outage", to=[server.url, f"{server.url}&second"]))
    await client.outages.begin("order", why="the bank is down")
    await client.alerts.look()
    [view] = await client.alerts.list()
    assert (view.waiting, view.error, len(server.requests)) == (1, "", 1)
    await client.alerts.look()
    assert await waiting(client) == [0]
    assert [one.path[-6:] for one in server.requests] == ["s3cret", "second"]


async def test_a_worker_that_stops_waits_for_the_message_it_is_sending_and_leaves_no_lease(
    opened: Open, watching: Watching, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(server, "answers", Answering(lambda: 200 if answer.wait(LIMIT) else 503))
    worker, _ = await opened(work=True, workflows=[], alerts=[AlertRule("outages", "outage", to=server.url)])
    await worker.outages.begin("order", why="the bank is down")
    loop = worker.worker.alert_rules.loop
    async with asyncio.timeout(LIMIT):
        while not server.requests:
            loop.wake()
            await worker.store.now()
    closing = asyncio.create_task(worker.close())
    await until(lambda: loop._task is None)
    answer.set()
    await closing
    client, store = await watching()
    assert await waiting(client) == [0] and await leased(client) == [""]
    store.ahead += 60
    await client.alerts.look()
    assert len(server.requests) == 1


async def test_a_worker_that_stops_at_once_leaves_no_lease_and_another_one_sends_again(
    opened: Open, watching: Watching, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(server, "answers", Answering(lambda: 200 if answer.wait(LIMIT) else 503))
    worker, _ = await opened(work=True, workflows=[], alerts=[AlertRule("outages", "outage", to=server.url)])
    await worker.outages.begin("order", why="the bank is down")
    async with asyncio.timeout(LIMIT):
        while not server.requests:
            worker.worker.alert_rules.loop.wake()
            await worker.store.now()
    await worker.close(0)
    answer.set()
    client, _ = await watching()
    assert await waiting(client) == [1] and await leased(client) == [""]
    await client.alerts.look()
    assert await waiting(client) == [0]
    assert len({one.headers["Idempotency-Key"] for one in server.requests}) == 1


async def test_a_look_that_is_cancelled_at_a_condition_leaves_no_lease(watching: Watching, server: Server) -> None:
    client, store = await watching()
    other, _ = await watching()
    await client.alerts.add(AlertRule("outages", "outage", to=server.url))
    await client.outages.begin("order", why="the bank is down")
    reads: list[str] = []

    async def stands_still(door: str, argument: Any) -> None:
        if door == "records":
            reads.append(door)
            if len(reads) == 3:  # all notes, the lease, the condition
                await asyncio.Event().wait()

    store.before = stands_still
    look = asyncio.create_task(client.alerts.look())
    await until(lambda: len(reads) == 3)
    assert any(await leased(other))
    look.cancel()
    await asyncio.wait([look])
    assert look.cancelled() and await leased(other) == [""]
    await other.alerts.look()
    assert len(server.requests) == 1
