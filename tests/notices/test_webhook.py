"""Webhooks: notices are posted to a URL, those of a process in order, until they are taken or a day is over."""

from __future__ import annotations

import asyncio
import hmac
import logging
from typing import Any

import pytest
from msgspec import json

from perdure import Engine, Status, Workflow, limits, testing
from perdure.authoring.webhook import KIND, SECRET
from perdure.errors import IllegalMove, InvalidInput
from tests.notices.flows import gatherer, patient, troubled, unwell
from tests.notices.server import Server
from tests.runtime.conftest import Open, until

HOSTED: list[Workflow[Any, Any]] = [gatherer, troubled, patient]
DAY = 24 * 3600


async def counted(engine: Engine, url: str) -> dict[str, int]:
    """How many notices the webhook has delivered and given up."""
    state: dict[str, int] = (await engine.process(await engine.webhook(url)).status()).state
    return state


async def test_a_url_is_told_that_a_process_was_received_and_how_it_ended(opened: Open, server: Server) -> None:
    unwell[0] = False
    engine, _ = await opened(work=True, workflows=HOSTED)
    handle = await engine.start(troubled.options(key="A-17", reply_to=server.url))
    await until(lambda: len(server.requests) == 2)
    assert server.told == [("A-17", "received"), ("A-17", "completed")]
    for request in server.requests:
        assert request.path == "/hook?token=s3cret"
        assert request.headers["Content-Type"] == "application/json"
        assert request.headers["Idempotency-Key"] == request.notice["id"]
        assert "Perdure-Signature" not in request.headers
    assert server.requests[1].notice == {
        "id": server.requests[1].notice["id"],
        "status": "completed",
        "process": handle.id,
        "kind": "troubled",
        "key": "A-17",
        "run": 1,
        "result": "well",
    }
    again = await engine.start(troubled.options(reply_to=server.url))
    assert (await again.status()).reply_to == (await handle.status()).reply_to, "one webhook for one URL"


async def test_what_is_not_taken_is_posted_again_later_and_what_comes_after_it_waits(server: Server) -> None:
    server.answers.extend([503, 429, 503])
    async with testing.engine() as engine:
        await engine.start(troubled.options(key="A-17", reply_to=server.url))
        await engine.sleep(DAY)
        assert [status for _, status in server.told] == ["received"] * 4 + ["completed"]
        assert len({request.headers["Idempotency-Key"] for request in server.requests}) == 2
        assert await counted(engine, server.url) == {"delivered": 2, "given_up": 0}


async def test_one_process_whose_notice_is_not_taken_keeps_no_other_waiting(server: Server) -> None:
    server.answers.extend([503])
    async with testing.engine() as engine:
        await engine.start(patient.options(key="first", reply_to=server.url))
        await until(lambda: len(server.requests) == 1)
        await engine.start(patient.options(key="second", reply_to=server.url))
        await until(lambda: len(server.requests) == 2)
        assert server.told[1] == ("second", "received")
        await engine.sleep(60)
        assert server.told[2] == ("first", "received")


@pytest.mark.parametrize("status", [400, 302])
async def test_what_a_receiver_refuses_for_good_is_given_up_and_the_next_one_is_posted(
    server: Server, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers.append(status)
    with caplog.at_level(logging.WARNING, "perdure"):
        async with testing.engine() as engine:
            await engine.start(troubled.options(key="A-17", reply_to=server.url))
            await engine.sleep(DAY)
            assert server.told == [("A-17", "received"), ("A-17", "completed")]
            assert {request.path for request in server.requests} == {"/hook?token=s3cret"}, "no redirect is followed"
            assert await counted(engine, server.url) == {"delivered": 1, "given_up": 1}
    assert f"with status {status}: it will not take it" in caplog.text
    assert "s3cret" not in caplog.text


async def test_what_nobody_takes_is_posted_for_a_day_and_given_up(server: Server) -> None:
    server.answers.extend([500] * 10_000)
    async with testing.engine() as engine:
        await engine.start(patient.options(key="A-17", reply_to=server.url))
        await engine.sleep(DAY - 1200)
        tried = len(server.requests)
        assert 90 < tried < 130
        assert await counted(engine, server.url) is None, "it is still tried"
        await engine.sleep(2 * DAY)
        assert await counted(engine, server.url) == {"delivered": 0, "given_up": 1}
        assert len(server.requests) < tried + 4


async def test_a_receiver_that_cannot_be_reached_is_told_once_it_can_be() -> None:
    with Server() as server:
        url = server.url
    async with testing.engine() as engine:
        handle = await engine.start(troubled.options(reply_to=url))
        assert await handle.result() == "well", "the process waits for no webhook"
        webhook = engine.process(await engine.webhook(url))
        await engine.sleep(3600)
        view = await webhook.status()
        assert view.status is Status.RUNNING
        assert view.kind == KIND
        assert view.key is not None
        assert "s3cret" not in view.key


async def test_a_webhook_goes_on_after_many_notices_and_counts_on(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WEBHOOK_NOTICE_RECORDS", 5)
    monkeypatch.setattr(limits, "WEBHOOK_DELIVERY_RECORDS", 2)
    async with testing.engine() as engine:
        handles = [await engine.start(troubled.options(key=str(n), reply_to=server.url)) for n in range(8)]
        await asyncio.gather(*(handle.result() for handle in handles))
        await until(lambda: len(server.requests) == 16)
        for number in range(8):
            assert [status for key, status in server.told if key == str(number)] == ["received", "completed"]
        webhook = engine.process(await engine.webhook(server.url))
        await engine.sleep(1)
        assert (await webhook.status()).run == 4
        assert await counted(engine, server.url) == {"delivered": 16, "given_up": 0}


async def test_a_signal_that_is_no_notice_is_passed_over(server: Server) -> None:
    async with testing.engine() as engine:
        webhook = engine.process(await engine.webhook(server.url))
        await webhook.signal("notice", "all is well")
        await engine.start(troubled.options(key="A-17", reply_to=webhook))
        await until(lambda: len(server.requests) == 2)
        assert server.told == [("A-17", "received"), ("A-17", "completed")]


async def test_a_webhook_that_was_ended_is_not_used_until_a_person_restarts_it(opened: Open, server: Server) -> None:
    first, _ = await opened(work=True, workflows=HOSTED)
    webhook = first.process(await first.webhook(server.url))
    await webhook.terminate(who="anna")
    await first.start(troubled.options(key="known here", reply_to=server.url))
    second, _ = await opened()
    with pytest.raises(IllegalMove, match=f"perdure restart {webhook.id}"):
        await second.start(troubled.options(reply_to=server.url))
    assert server.requests == []
    await webhook.restart()
    await second.start(troubled.options(key="A-17", reply_to=server.url))
    await until(lambda: len(server.requests) == 4)
    assert sorted(server.told) == [
        ("A-17", "completed"), ("A-17", "received"), ("known here", "completed"), ("known here", "received")
    ]  # fmt: skip


async def test_a_request_is_signed_by_the_secret_of_its_worker(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, "of the shop")
    async with testing.engine() as engine:
        await engine.start(troubled.options(reply_to=server.url))
        await until(lambda: len(server.requests) == 2)
    for request in server.requests:
        signature = hmac.new(b"of the shop", request.body, "sha256").hexdigest()
        assert request.headers["Perdure-Signature"] == f"sha256={signature}"
        assert json.decode(request.body)["kind"] == "troubled"


BAD = [
    "ftp://example.org/s3cret", "https:///s3cret", "http://anna:s3cret@example.org/", "http://example.org/s3cret#1",
    "http://example.org/s3 cret", "http://example.org/s3cret\r\nHost: b", "http://example.org:99999/s3cret",
    "http://exämple.org/s3cret", "http://example.org/s3cret" + 2000 * "x", "mailto:s3cret@example.org", "http://[::1/s3cret",
]  # fmt: skip


@pytest.mark.parametrize("url", BAD)
async def test_a_url_that_cannot_be_posted_to_is_refused_without_telling_its_secret(url: str) -> None:
    async with testing.engine() as engine:
        with pytest.raises(InvalidInput) as refused:
            await engine.start(patient.options(reply_to=url))
        assert "s3cret" not in str(refused.value)
        with pytest.raises(InvalidInput) as no_url:
            await engine.webhook(url.partition("//")[2])
        assert "s3cret" not in str(no_url.value)
        assert await engine.list() == []
