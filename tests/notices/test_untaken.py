"""Notices that are not taken wait by themselves: all other processes are told, also while the webhook renews itself."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import timedelta
from errno import EMFILE
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine, Status, Workflow, limits, testing
from perdure.authoring import webhook
from perdure.client import reply
from perdure.client.handle import Handle
from perdure.errors import CallRefused
from perdure.kernel.event import EventType
from perdure.kernel.notice import Notice
from perdure.kernel.retry import Retry
from tests.golden.page import looks, read
from tests.notices.flows import patient, troubled, unwell
from tests.notices.former_webhook import former
from tests.notices.server import Server
from tests.runtime.conftest import LIMIT, Open, until, until_row
from tests.runtime.test_renewal import sound

HOSTED: list[Workflow[Any, Any]] = [troubled, patient]
HOUR, DAY = 3600, 24 * 3600


@pytest.fixture(autouse=True)
def _well() -> None:
    unwell[0] = False


def refuses(server: Server, *bad: str, status: int = 503) -> list[str]:
    """Have notices of these processes not taken, by their keys; what is removed from the list is taken from then on."""
    refused = list(bad)
    server.answer = lambda posted: status if posted.notice["key"] in refused else 200
    return refused


def told(server: Server, key: str) -> list[str]:
    """The statuses that were posted of one process."""
    return [status for name, status in server.told if name == key]


async def counted(engine: Engine, server: Server) -> Any:
    """How many notices the webhook has delivered and given up."""
    return (await engine.process(await engine.webhook(server.url)).status()).state


async def test_any_number_of_processes_whose_notices_are_not_taken_keep_no_other_waiting(server: Server) -> None:
    bad = [f"bad {number}" for number in range(3 * limits.WEBHOOK_DELIVERY_RECORDS)]
    refused = refuses(server, *bad)
    async with testing.engine() as engine:
        for key in bad:
            await engine.start(patient.options(key=key, reply_to=server.url))
        await until(lambda: {name for name, _ in server.told} == set(bad))
        for key in ("good", "fine"):
            await engine.start(troubled.options(key=key, reply_to=server.url))
            await until(lambda key=key: told(server, key) == ["received", "completed"])  # type: ignore[misc]
        id = await engine.webhook(server.url)
        await until_row(engine, id, lambda row: row.state == b'{"delivered":4,"given_up":0}')
        refused.clear()
        await engine.sleep(HOUR)
        assert await counted(engine, server) == {"delivered": 4 + len(bad), "given_up": 0}


async def test_many_notices_behind_one_that_is_not_taken_keep_no_other_process_waiting(server: Server) -> None:
    refused = refuses(server, "bad")
    async with testing.engine() as engine:
        bad = await engine.start(patient.options(key="bad", reply_to=server.url))
        await until(lambda: told(server, "bad"))
        for _ in range(limits.WEBHOOK_DELIVERY_RECORDS):
            await bad.hold()
            await bad.resume()
        await engine.start(troubled.options(key="good", reply_to=server.url))
        await until(lambda: told(server, "good") == ["received", "completed"])
        assert set(told(server, "bad")) == {"received"}, "the later ones wait for the first"
        refused.clear()
        await engine.sleep(HOUR)
        first = told(server, "bad").index("held")
        assert told(server, "bad")[first:] == ["held", "running"] * limits.WEBHOOK_DELIVERY_RECORDS


async def test_a_webhook_continues_as_new_while_notices_are_not_taken_and_keeps_their_order(
    opened: Open, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WEBHOOK_NOTICE_RECORDS", 6)
    monkeypatch.setattr(webhook, "_UNTIL_TAKEN", Retry(attempts=1_000_000, first=0.02, cap=0.02))
    refused = refuses(server, "bad", "worse")
    engine, _ = await opened(work=True, workflows=HOSTED)
    for key in ("bad", "worse"):
        await (await engine.start(troubled.options(key=key, reply_to=server.url))).result(LIMIT)
    for number in range(8):
        await (await engine.start(troubled.options(key=f"good {number}", reply_to=server.url))).result(LIMIT)
    await until(lambda: all(told(server, f"good {number}")[1:] for number in range(8)))
    process = engine.process(await engine.webhook(server.url))
    run = (await process.status()).run
    assert run >= 3
    await process.hold()
    await sound(engine, process)
    await process.resume()
    refused.clear()
    await until(lambda: told(server, "bad")[-1:] == told(server, "worse")[-1:] == ["completed"])
    for key in ("bad", "worse"):
        posted = told(server, key)
        assert posted == ["received"] * (len(posted) - 1) + ["completed"] and len(posted) > 3
    for number in range(8):
        assert told(server, f"good {number}") == ["received", "completed"]
    assert len({request.notice["id"] for request in server.requests}) == 20
    row = await until_row(engine, process.id, lambda row: b'"delivered":20' in (row.state or b""))
    assert row.status is Status.RUNNING


async def test_what_is_not_taken_is_given_up_after_a_day_however_often_the_webhook_continues_as_new(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WEBHOOK_NOTICE_RECORDS", 10)
    refuses(server, "bad")
    async with testing.engine() as engine:
        await engine.start(patient.options(key="bad", reply_to=server.url))
        await until(lambda: told(server, "bad"))
        await engine.sleep(DAY - 1200)
        tried = len(told(server, "bad"))
        assert 90 < tried < 130, "the waits grow from one run to the next"
        assert (await engine.process(await engine.webhook(server.url)).status()).run > 8
        await engine.sleep(2 * DAY)
        assert await counted(engine, server) == {"delivered": 0, "given_up": 1}
        assert len(told(server, "bad")) < tried + 4


@pytest.mark.parametrize(("limit", "most"), [("WEBHOOK_WAITING_RECORDS", 3), ("WEBHOOK_WAITING_BYTES", 450)])
async def test_beyond_a_bound_of_notices_that_are_not_taken_the_others_wait_too(
    server: Server, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(limits, limit, most)
    refused = refuses(server, "bad 0", "bad 1", "bad 2")
    async with testing.engine() as engine:
        for number in range(3):
            await engine.start(patient.options(key=f"bad {number}", reply_to=server.url))
            await until(lambda number=number: told(server, f"bad {number}"))  # type: ignore[misc]
        await engine.start(troubled.options(key="good", reply_to=server.url))
        await engine.sleep(HOUR)
        assert told(server, "good") == []
        refused.remove("bad 1")
        await engine.sleep(HOUR)
        assert told(server, "good") == ["received", "completed"]


async def test_second_attempts_that_get_no_answer_leave_room_for_what_is_new(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WEBHOOK_DELIVERY_RECORDS", 2)
    monkeypatch.setattr(limits, "WEBHOOK_AGAIN_RECORDS", 1)
    monkeypatch.setattr(webhook, "_UNTIL_TAKEN", Retry(attempts=9, jitter=0))
    refuses(server, "bad 0", "bad 1", "bad 2")
    whole, times, answers = webhook.request, Counter[str](), threading.Event()

    def request(url: str, body: bytes, key: str) -> int:
        times[key] += 1
        if times[key] == 2:
            answers.wait(LIMIT)
        return whole(url, body, key)

    monkeypatch.setattr(webhook, "request", request)
    async with testing.engine() as engine:
        for number in range(3):
            await engine.start(patient.options(key=f"bad {number}", reply_to=server.url))
        id = await engine.webhook(server.url)
        await until_row(engine, id, lambda row: row.events == 7)  # three notices were not taken
        due = engine.now() + timedelta(seconds=1)
        later = asyncio.create_task(engine.sleep(10))
        await until(lambda: max(times.values()) == 2 and engine.now() > due)
        await engine.start(troubled.options(key="good", reply_to=server.url))
        await until(lambda: told(server, "good") == ["received", "completed"])
        assert sorted(times.values()) == [1, 1, 1, 1, 2]
        answers.set()
        await later
        assert min(len(told(server, f"bad {number}")) for number in range(3)) > 2


async def test_a_worker_that_is_short_of_descriptors_has_not_posted_anything(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, refused = webhook.request, [OSError(EMFILE, "Too many open files")]

    def request(url: str, body: bytes, key: str) -> int:
        if refused:
            raise refused.pop()
        return whole(url, body, key)

    monkeypatch.setattr(webhook, "request", request)
    monkeypatch.setattr(limits, "SHORTAGE_AGAIN_SECONDS", 0.01)
    async with testing.engine() as engine:
        await engine.start(patient.options(key="A-17", reply_to=server.url))
        await until(lambda: told(server, "A-17"))
        assert engine.metrics()["attempts_put_off"] == 1
        history = await engine.process(await engine.webhook(server.url)).history()
        assert EventType.TIMER_FIRED not in [event.type for event in history], "it was not to be posted again later"


async def test_a_call_of_a_person_is_answered_and_one_that_is_no_notice_is_refused(server: Server) -> None:
    notice = Notice("7", "held", "somebody", "parcel", 1, key="A-17")
    async with testing.engine() as engine:
        process = engine.process(await engine.webhook(server.url))
        with pytest.raises(CallRefused, match="notice"):
            await process.call("notice", "all is well")
        assert await process.call("notice", notice) is None
        await until(lambda: server.told == [("A-17", "held")])


# -- runs that an older Perdure has begun ------------------------------------------------------------------------------


def test_a_history_of_the_former_webhook_is_replayed_to_what_it_came_to_then() -> None:
    page = read(Path(__file__).with_name("former_webhook.json"))
    # Before its first turn was written a run is as good as new.
    assert list(looks(page))[1:] == page.looks[1:]


async def test_a_run_of_the_former_webhook_goes_on_as_it_was_begun_and_the_next_one_as_today(
    opened: Open, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WEBHOOK_NOTICE_RECORDS", 6)
    refused = refuses(server, "bad")
    with monkeypatch.context() as before:
        old_code = former()
        for module in (webhook, reply):
            before.setattr(module, "webhook", old_code)
        old, _ = await opened(work=True, workflows=HOSTED)
        await (await old.start(troubled.options(key="bad", reply_to=server.url))).result(LIMIT)
        await (await old.start(troubled.options(key="good", reply_to=server.url))).result(LIMIT)
        await until(lambda: told(server, "good") == ["received", "completed"])
        id = await old.webhook(server.url)
        await until_row(old, id, lambda row: b'"delivered":2' in (row.state or b""))
        await old.close()
    refused.clear()
    engine, _ = await opened(work=True, workflows=HOSTED)
    for key in ("next", "last"):
        await (await engine.start(troubled.options(key=key, reply_to=server.url))).result(LIMIT)
        await until(lambda key=key: told(server, key) == ["received", "completed"])  # type: ignore[misc]
    handle: Handle[Any] = engine.process(id)
    await until_row(engine, id, lambda row: row.run == 2 and b'"delivered":8' in (row.state or b""))
    assert EventType.PATCHED not in [event.type for event in await handle.history(1)]
    assert EventType.PATCHED in [event.type for event in await handle.history(2)]
    assert told(server, "bad")[-2:] == ["received", "completed"]
