"""Sinks: workers deliver a stream to a URL or to Redis, each batch until it is taken, and go on where one has died."""

from __future__ import annotations

import asyncio
import hmac
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from msgspec import json
from redis import Redis

from perdure import Engine, limits
from perdure.authoring.webhook import SECRET
from perdure.errors import InvalidInput
from perdure.streaming.sink import sink_for
from tests.notices.server import Answering, Server
from tests.runtime.conftest import LIMIT, Open, until
from tests.streams.flows import HOSTED, parcel
from tests.streams.looks import until_view
from tests.streams.redis_server import RedisServer


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STREAM_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(limits, "STREAM_RETRY_SECONDS", 0.02)


def posted(server: Server) -> list[dict[str, Any]]:
    """The records of all requests, in order."""
    return [record for request in server.requests for record in json.decode(request.body)]


def added(redis: RedisServer, key: str = "perdure:audit") -> list[dict[str, Any]]:
    """The records of all entries of a stream of Redis, in order."""
    with Redis(port=redis.port) as client:
        entries: Any = client.xrange(key)
    for id, fields in entries:
        assert id.decode() == f"{json.decode(fields[b'record'])['position']}-0"
    return [json.decode(fields[b"record"]) for _, fields in entries]


async def delivered(engine: Engine) -> None:
    """Wait until nothing is left to deliver."""
    await until_view(engine, lambda view: view.behind == 0)


async def test_a_url_gets_every_record_in_order_signed(
    opened: Open, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET, "hush")
    engine, _ = await opened(work=True, workflows=HOSTED)
    view = await engine.streams.put("audit", to=server.url)
    assert view.to == server.url.partition("/hook")[0] and "s3cret" not in str(view)
    handle = await engine.start(parcel.options(key="A-17"), "tea")
    await handle.result(20)
    await delivered(engine)
    records = posted(server)
    assert [one["type"] for one in records] == ["created", "begun", "step_completed", "step_completed", "completed"]
    assert {(one["process"], one["kind"], one["key"], one["run"]) for one in records} == {
        (handle.id, "parcel", "A-17", 1)
    }
    assert records[0]["payload"] == ["tea"] and records[0]["at"].endswith("Z")
    for request in server.requests:
        signature = hmac.new(b"hush", request.body, "sha256").hexdigest()
        assert request.headers["Perdure-Signature"] == f"sha256={signature}"
        first, last = json.decode(request.body)[0]["position"], json.decode(request.body)[-1]["position"]
        assert request.headers["Idempotency-Key"] == f"audit/{first}-{last}"


async def test_a_url_that_refuses_stops_its_own_stream_alone_and_gets_the_batch_again(
    opened: Open, server: Server
) -> None:
    server.answers.extend([500, 400, 302])
    engine, _ = await opened(work=True, workflows=HOSTED)
    await engine.streams.put("audit", to=server.url)
    await engine.streams.put("beside")
    await (await engine.start(parcel, "tea")).result(20)
    assert [one.type for batch in [b async for b in engine.streams.read("beside", wait=False)] for one in batch][
        -1:
    ] == ["completed"]
    await delivered(engine)
    bodies = [request.body for request in server.requests]
    positions = [one["position"] for one in posted(server)]
    assert bodies[0] == bodies[1] == bodies[2] and len(bodies) >= 4, "nothing behind it was posted before it was taken"
    assert sorted(set(positions)) == positions[len(positions) - len(set(positions)) :]
    assert (await engine.streams.state("audit")).failures == 0


async def test_a_stream_that_gets_another_url_goes_on_there_behind_what_was_taken(opened: Open, server: Server) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    await engine.streams.put("audit", to="http://127.0.0.1:9/closed")
    await (await engine.start(parcel, "tea")).result(20)
    view = await until_view(engine, lambda view: view.failures > 0)
    assert view.behind == 5 and "Error" in view.error
    await engine.streams.put("audit", to=server.url)
    await delivered(engine)
    assert [one["type"] for one in posted(server)][-1] == "completed" and len(posted(server)) == 5


async def test_another_worker_goes_on_where_one_has_stopped(opened: Open, server: Server) -> None:
    first, _ = await opened(work=True, workflows=HOSTED)
    await first.streams.put("audit", to=server.url)
    await (await first.start(parcel, "one")).result(20)
    await delivered(first)
    second, _ = await opened(work=True, workflows=HOSTED)
    await first.close(0)
    await (await second.start(parcel, "two")).result(20)
    await delivered(second)
    positions = [one["position"] for one in posted(server)]
    assert len(positions) == 10 and positions == sorted(set(positions))


async def test_redis_gets_every_record_once_under_its_position(opened: Open, redis: RedisServer) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    await engine.streams.put("audit", to=f"{redis.url}?maxlen=10000")
    handles = [await engine.start(parcel, str(number)) for number in range(10)]
    for handle in handles:
        await handle.result(20)
    await delivered(engine)
    records = added(redis)
    assert len(records) == 50
    for handle in handles:
        mine = [one["type"] for one in records if one["process"] == handle.id]
        assert mine == ["created", "begun", "step_completed", "step_completed", "completed"]


async def test_a_batch_that_redis_has_taken_before_is_not_there_twice(opened: Open, redis: RedisServer) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    await engine.streams.put("audit")
    await (await engine.start(parcel, "tea")).result(20)
    records = await engine.streams.tail("audit", 100)
    sink = sink_for(redis.url)
    for part in (records[:3], records, records):  # as after a crash between the sink and the position
        await sink.deliver("audit", part)
    await sink.close()
    assert [one["position"] for one in added(redis)] == [record.position for record in records]
    assert len(records) == 5


async def test_redis_that_holds_other_records_there_is_told_and_keeps_them(opened: Open, redis: RedisServer) -> None:
    with Redis(port=redis.port) as client:
        client.xadd("perdure:audit", {"event": "another"}, id="1-0")
        client.xadd("perdure:audit", {"event": "another"}, id="1000000-0")
    engine, _ = await opened(work=True, workflows=HOSTED)
    await engine.streams.put("audit", to=redis.url)
    await (await engine.start(parcel, "tea")).result(20)
    view = await until_view(engine, lambda view: view.failures > 0)
    assert view.error.startswith("Diverged: the stream perdure:audit of Redis holds other records")
    assert view.behind == 5


async def test_redis_that_is_down_keeps_a_stream_waiting_and_gets_all_when_it_is_back(
    opened: Open, redis: RedisServer
) -> None:
    redis.stop()
    engine, _ = await opened(work=True, workflows=HOSTED)
    await engine.streams.put("audit", to=redis.url)
    await (await engine.start(parcel, "tea")).result(20)
    await until_view(engine, lambda view: view.failures > 0)
    redis.start()
    await delivered(engine)
    assert [one["type"] for one in added(redis)][-1] == "completed"


async def test_without_its_extra_redis_is_refused_with_what_to_install(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = await opened()
    monkeypatch.setitem(__import__("sys").modules, "redis.asyncio", None)
    with pytest.raises(InvalidInput, match=r"pip install 'perdure\[redis\]'"):
        await engine.streams.put("audit", to="redis://127.0.0.1")


async def test_a_url_that_does_not_answer_leaves_the_threads_of_the_event_loop_to_others(
    opened: Open, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Event()
    monkeypatch.setattr(server, "answers", Answering(lambda: 200 if answer.wait(LIMIT) else 503))
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    engine, _ = await opened(work=True, workflows=HOSTED)
    await engine.streams.put("audit", to=server.url)
    await (await engine.start(parcel, "tea")).result(20)
    await until(lambda: server.requests)
    await asyncio.to_thread(answer.set)  # the server answers once another thread has been free
    await delivered(engine)
    positions = [one["position"] for one in posted(server)]
    assert positions == sorted(set(positions)), "none came again"
