"""Event streams: everything that happens is handed on after its commit, in order, and again until it was handled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from perdure import BlockingEngine, Engine, limits, testing
from perdure.errors import IllegalMove, InvalidInput, InvalidKey, StoreUnavailable, StreamNotFound, WorkflowMisuse
from perdure.kernel.stream import MOST_FAILURES, EventStream
from perdure.store.sealed.offload import Folder
from perdure.streaming.delivery import pause_after
from perdure.streaming.record import StreamRecord
from tests.runtime.conftest import Open, until
from tests.runtime.test_sealed_life import sealed
from tests.streams.flows import HOSTED, letter, parcel, stubborn
from tests.streams.looks import until_view


async def drained(engine: Engine, name: str = "audit") -> list[StreamRecord]:
    """All records that stand behind the position now; they are handled."""
    return [record async for batch in engine.streams.read(name, wait=False) for record in batch]


def types(records: Sequence[StreamRecord]) -> list[str]:
    return [record.type for record in records]


async def test_everything_that_a_process_does_is_handed_on_in_order_with_what_it_holds(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    await engine.streams.put("audit")
    handle = await engine.start(parcel.options(key="A-17"), "tea")
    await handle.result(20)
    records = await drained(engine)
    assert types(records) == ["created", "begun", "step_completed", "step_completed", "completed"]
    assert {(one.process, one.kind, one.key, one.run) for one in records} == {(handle.id, "parcel", "A-17", 1)}
    assert [one.number for one in records] == [0, 0, 1, 2, 3]
    assert [one.position for one in records] == sorted({one.position for one in records})
    created, _, first, _, completed = records
    assert created.payload == ["tea"] and first.payload == "tea, packed"
    assert (first.name, first.version) == ("pack", parcel.version)
    assert created.at is not None and completed.at is not None and created.at <= completed.at
    assert await drained(engine) == []


async def test_a_life_alone_is_told_with_reasons_commands_and_the_removal(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    await engine.streams.put("lives", events="lifecycle")
    failed = await engine.start(letter, "")
    with pytest.raises(Exception, match="nothing to say"):
        await failed.result(20)
    handle = await engine.start(letter, "dear")
    await handle.hold(who="ana", why="a strike")
    await handle.resume(who="ben")
    await handle.signal("stamp", "!")
    assert await handle.result(20) == "dear!"
    await handle.remove(who="cy")
    records = await drained(engine, "lives")
    one = [record for record in records if record.process == failed.id]
    assert types(one) == ["created", "begun", "failed"]
    assert one[-1].payload["message"] == "nothing to say"
    other = [record for record in records if record.process == handle.id]
    assert types(other) == ["created", "begun", "held", "resumed", "completed", "removed"]
    assert (other[2].payload["who"], other[2].payload["why"]) == ("ana", "a strike")
    assert (other[-1].kind, other[-1].key) == ("letter", None)


async def test_a_workflow_that_is_tried_again_tells_each_attempt_and_one_end(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    await engine.streams.put("lives", events="lifecycle")
    handle = await engine.start(stubborn)
    with pytest.raises(Exception, match="never"):
        await handle.result(20)
    told = types(await drained(engine, "lives"))
    assert [type for type in told if type != "begun"] == ["created", "run_opened", "run_retried", "failed"]


async def test_a_batch_whose_handling_fails_comes_again_and_one_that_was_handled_does_not(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    await engine.streams.put("audit")
    await (await engine.start(parcel, "tea")).result(20)

    async def broken() -> list[StreamRecord]:
        async with engine.streams.read("audit") as batches:
            async for batch in batches:
                return list(batch)
        return []

    first = await broken()
    assert await broken() == first
    async with engine.streams.read("audit") as batches:
        assert list(await anext(batches)) == first
        await batches.handled()
    assert await drained(engine) == []


async def test_only_what_is_wanted_comes_and_a_stream_is_changed_without_losing_its_position(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    await engine.streams.put("audit", kinds=["letter"])
    await (await engine.start(parcel, "tea")).result(20)
    assert await drained(engine) == []
    before = (await engine.streams.state("audit")).position
    assert before > 0
    view = await engine.streams.put("audit", kinds=["parcel"], who="ana", why="more")
    assert (view.position, view.kinds, view.who, view.why) == (before, ["parcel"], "ana", "more")
    await (await engine.start(parcel, "tea")).result(20)
    assert len(await drained(engine)) == 5


async def test_a_stream_shows_how_far_behind_it_is_and_why(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    empty = await engine.streams.put("audit")
    assert (empty.behind, empty.oldest, empty.reader) == (0, None, "")
    handle = await engine.start(parcel, "tea")
    await handle.result(20)
    view = await engine.streams.state("audit")
    created = (await handle.status()).created_at
    assert (view.behind, view.oldest) == (5, created)
    assert [record.type for record in await engine.streams.tail("audit", 2)] == ["created", "begun"]
    assert (await engine.streams.state("audit")).behind == 5, "a look moves nothing"
    async with engine.streams.read("audit") as batches:
        await anext(batches)
        held = await engine.streams.state("audit")
        assert held.reader and held.until is not None
    assert (await engine.streams.state("audit")).reader == ""


async def test_one_reader_reads_at_a_time_and_another_one_waits_for_it(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    other, _ = await opened()
    await engine.streams.put("audit")
    await (await engine.start(parcel, "tea")).result(20)
    async with engine.streams.read("audit") as mine:
        batch = await anext(mine)
        with pytest.raises(IllegalMove, match="is being read by"):
            await drained(other)
    assert await drained(other) == list(batch)


async def test_a_reader_that_has_lost_its_lease_moves_nothing() -> None:
    async with testing.engine(workflows=HOSTED) as engine:
        await engine.streams.put("audit")
        await (await engine.start(parcel, "tea")).result()
        frozen = engine.streams.read("audit")
        first = await anext(frozen)
        assert frozen.reader._renewal is not None
        frozen.reader._renewal.cancel()  # as in an OS process that was stopped
        await engine.sleep(limits.STREAM_LEASE_SECONDS + 1)
        async with engine.streams.read("audit") as other:
            assert list(await anext(other)) == list(first)
            position = (await engine.streams.state("audit")).position
            await frozen.handled()
            assert (await engine.streams.state("audit")).position == position
            assert not frozen.reader.held
        await frozen.aclose()


async def test_a_reader_that_takes_long_keeps_its_lease(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    await engine.streams.put("audit")
    await (await engine.start(parcel, "tea")).result(20)
    monkeypatch.setattr(limits, "STREAM_LEASE_SECONDS", 0.3)
    async with engine.streams.read("audit") as slow:
        await anext(slow)
        assert slow.reader.row is not None
        begun = slow.reader.row.version
        await until(lambda: slow.reader.row is not None and slow.reader.row.version >= begun + 5)
        with pytest.raises(IllegalMove):
            await drained(engine)
    assert len(await drained(engine)) == 5


async def test_a_reader_that_was_left_in_the_middle_keeps_its_lease_for_no_longer(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STREAM_LEASE_SECONDS", 0.3)
    engine, _ = await opened(work=True, workflows=HOSTED)
    await engine.streams.put("audit")
    await (await engine.start(parcel, "tea")).result(20)
    left: list[int] = []
    async for batch in engine.streams.read("audit"):
        left.append(batch[0].position)
        break
    async with asyncio.timeout(20), engine.streams.read("audit") as batches:
        assert [(await anext(batches))[0].position] == left


async def test_a_consumer_that_raises_gets_the_same_batch_again_later_and_later_and_the_stream_says_so(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STREAM_RETRY_SECONDS", 0.04)
    engine, _ = await opened(work=True, workflows=HOSTED)
    await engine.streams.put("audit")
    await (await engine.start(parcel, "tea")).result(20)
    given: list[list[StreamRecord]] = []
    at: list[float] = []

    async def consume(batch: Sequence[StreamRecord]) -> None:
        given.append(list(batch))
        at.append(asyncio.get_running_loop().time())
        if len(given) < 4:
            raise OSError("the warehouse is shut")
        view = await engine.streams.state("audit")
        assert (view.failures, view.error, view.behind) == (3, "OSError: the warehouse is shut", 5)

    following = asyncio.create_task(engine.streams.follow("audit", consume))
    await until_view(engine, lambda view: view.behind == 0)
    following.cancel()
    assert len(given) == 4 and all(batch == given[0] for batch in given)
    assert all(after - before >= pause for (before, after), pause in zip(pairwise(at), (0.03, 0.06, 0.12), strict=True))
    view = await engine.streams.state("audit")
    assert (view.failures, view.error) == (0, "")


def test_a_sink_that_is_away_for_days_is_tried_once_a_minute() -> None:
    assert [pause_after(failures) for failures in (1, 2, 7, 5_000, MOST_FAILURES)] == [1.0, 2.0, 60.0, 60.0, 60.0]


async def test_what_comes_while_somebody_follows_is_handed_on_within_a_moment(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    await engine.streams.put("audit")
    got: list[StreamRecord] = []

    async def consume(batch: Sequence[StreamRecord]) -> None:
        got.extend(batch)

    following = asyncio.create_task(engine.streams.follow("audit", consume))
    handles = [await engine.start(parcel, str(number)) for number in range(5)]
    for handle in handles:
        await handle.result(20)
    await until(lambda: len(got) == 25)
    following.cancel()
    for handle in handles:
        assert [one.number for one in got if one.process == handle.id] == [0, 0, 1, 2, 3]


async def test_a_database_that_is_away_stops_no_follower_and_loses_no_position(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=HOSTED)
    await engine.streams.put("audit")
    await (await engine.start(parcel, "tea")).result(20)
    lost: list[str] = []

    async def away(door: str, argument: Any) -> None:
        if door == "records" and argument is EventStream and len(lost) < 3:
            lost.append(door)
            raise StoreUnavailable("the answer was lost")

    got: list[StreamRecord] = []

    async def consume(batch: Sequence[StreamRecord]) -> None:
        got.extend(batch)

    store.after = away
    following = asyncio.create_task(engine.streams.follow("audit", consume))
    await until(lambda: len(got) >= 5 and len(lost) == 3)
    await until_view(engine, lambda view: view.behind == 0)
    following.cancel()
    assert len(got) == 5


async def test_sealed_values_are_handed_on_open_and_to_a_stranger_with_the_reason(opened: Open, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "blobs", above=500)
    engine, _ = await opened(work=True, workflows=HOSTED, codecs=sealed(), offload=folder)
    await engine.streams.put("audit")
    await engine.streams.put("stranger")
    long = 600 * "x"
    await (await engine.start(parcel.options(key="A-17"), long)).result(20)
    created, _, first, _, last = await drained(engine)
    assert (created.payload, first.payload) == ([long], f"{long}, packed")
    assert created.trouble is first.trouble is last.trouble is None
    stranger, _ = await opened()
    records = await drained(stranger, "stranger")
    assert types(records) == ["created", "begun", "step_completed", "step_completed", "completed"]
    assert records[0].payload is None and "sealed" in (records[0].trouble or "")
    assert b"xxx" not in b"".join(record.as_json() for record in records)


async def test_streams_are_listed_by_name_and_removed_for_good(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    assert await engine.streams.list() == []
    for name in ("b", "a"):
        await engine.streams.put(name)
    assert [one.name for one in await engine.streams.list()] == ["a", "b"]
    await engine.streams.remove("a")
    with pytest.raises(StreamNotFound, match="perdure stream ls"):
        await engine.streams.remove("a")
    with pytest.raises(StreamNotFound):
        await engine.streams.state("a")
    with pytest.raises(StreamNotFound):
        await drained(engine, "a")
    await engine.streams.remove("b")
    await (await engine.start(parcel, "tea")).result(20)
    assert (await engine.streams.put("a")).behind == 0


async def test_who_removes_a_stream_removes_all_that_only_it_has_not_had(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STREAM_TRIMMED_RECORDS", 2)
    engine, store = await opened(work=True, workflows=HOSTED)
    await engine.streams.put("behind")
    await (await engine.start(parcel, "tea")).result(20)
    await engine.streams.put("ahead")
    await engine.streams.remove("behind")
    log = store.backend.event_log
    left = (await log.read(0, 100, 1_000_000)).events
    assert [one.position for one in left] in ([], [await log.head()]), "SQLite keeps the last number"
    assert not await log.trim()


async def test_what_makes_no_sense_is_refused_before_anything_is_stored(opened: Open) -> None:
    engine, _ = await opened()
    with pytest.raises(InvalidKey):
        await engine.streams.put("")
    with pytest.raises(InvalidInput, match="'all' or 'lifecycle'"):
        await engine.streams.put("audit", events="some")  # type: ignore[arg-type]  # that is what is refused
    for kinds in ("order", [], [""]):
        with pytest.raises(InvalidInput):
            await engine.streams.put("audit", kinds=kinds)
    with pytest.raises(InvalidInput, match="are allowed"):
        await engine.streams.put("audit", kinds=[f"kind {number} {100 * 'x'}" for number in range(100)])
    secret = "s3cret"
    for url in (
        f"ftp://host/{secret}", f"https://{secret}@host/", "http://", f"redis://host?{secret}=1", "redis:///0",
        f"redis://host?maxlen={secret}", "redis://host?maxlen=5", "", "nonsense",
    ):  # fmt: skip
        with pytest.raises(InvalidInput) as refused:
            await engine.streams.put("audit", to=url)
        assert secret not in str(refused.value)
    with pytest.raises(InvalidInput):
        await engine.streams.tail("audit", -1)
    assert await engine.streams.list() == []


async def test_a_program_without_an_event_loop_reads_a_stream_too(store_url: str) -> None:
    def program() -> list[str]:
        with BlockingEngine(store_url, work=True, workflows=HOSTED) as engine:
            engine.streams.put("audit")
            engine.start(parcel, "tea").result(20)
            assert [view.behind for view in engine.streams.list()] == [5]
            assert len(engine.streams.tail("audit")) == 5
            found = [record.type for batch in engine.streams.read("audit", wait=False) for record in batch]
            engine.streams.follow("audit", lambda batch: found.append("more"), wait=False)
            assert engine.streams.state("audit").behind == 0
            engine.streams.remove("audit")
            return found

    found = await asyncio.to_thread(program)
    assert found == ["created", "begun", "step_completed", "step_completed", "completed"]


async def test_workflow_code_does_not_read_a_stream(opened: Open) -> None:
    from perdure import workflow

    engine, _ = await opened(work=True, workflows=HOSTED)
    met: list[BaseException] = []

    @workflow
    async def nosy() -> None:
        try:
            engine.streams.read("audit")
        except WorkflowMisuse as error:
            met.append(error)

    engine.registry.add(nosy)
    await (await engine.start(nosy)).result(20)
    assert len(met) == 1


async def test_a_consumer_whose_driver_turns_a_cancellation_into_an_error_is_cancelled_all_the_same(
    opened: Open,
) -> None:
    """Redis in the moment in which it goes away: the worker that delivers there must still stop."""
    engine, _ = await opened(work=True, workflows=HOSTED)
    await engine.streams.put("audit")
    await (await engine.start(parcel, "tea")).result(20)
    taking = asyncio.Event()

    async def consume(batch: Sequence[StreamRecord]) -> None:
        taking.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("Connection closed by server.") from None

    following = asyncio.create_task(engine.streams.follow("audit", consume))
    await taking.wait()
    following.cancel()
    done, waiting = await asyncio.wait([following], timeout=0.5)
    for one in waiting:
        one.cancel()
    assert done
