"""Processes whose payloads are sealed live like any others; one that cannot be opened harms nobody but itself."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import receive, set_state, workflow
from perdure.engine import Engine
from perdure.errors import ProcessBroken, ProcessFailed, StepError, UnreadablePayload
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.store.sealed.codec import AesGcm, Codec, Zstd
from perdure.store.sealed.offload import Folder
from perdure.testing.faults import Outage
from perdure.turns.saga import saga
from tests.runtime.conftest import LIMIT, Open, until, until_row

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
LONG = "".join(chr(0x4E00 + n) for n in range(5000))


def sealed(**keys: bytes) -> list[Codec]:
    return [Zstd(), AesGcm(keys or {"old": OLD})]


@step(retry=Retry.NONE)
async def say(words: str) -> str:
    return words + "!"


@workflow
async def talk(words: str) -> str:
    first = await say(words)
    set_state({"said": first})
    return first + await receive("more", str)


@workflow
async def short(words: str) -> str:
    return await say(words)


@step(retry=Retry.NONE)
async def refuse(words: str) -> None:
    raise ValueError(words)


@workflow
async def picky(words: str) -> None:
    await refuse(await say(words))


FLOWS = [talk, short, picky]


async def waits(engine: Engine, id: str) -> None:
    await until_row(engine, id, lambda row: row.owner is None and row.status is Status.RUNNING and row.events == 1)


@pytest.mark.parametrize("words", ["hello", LONG], ids=["inside", "outside"])
async def test_rule_05_a_sealed_process_lives_through_outages_in_which_answers_are_lost(
    opened: Open, tmp_path: Path, words: str
) -> None:
    folder = Folder(tmp_path / "blobs", above=1000)
    engine, store = await opened(work=True, workflows=FLOWS, codecs=sealed(), offload=folder)
    outage = Outage("start", "commit", "send", after=True).upon(store)
    outage.away = True
    starting = asyncio.create_task(engine.start(talk.options(key="k"), words))
    await until(lambda: outage.failed >= 1)
    outage.away = False
    handle = await starting
    await waits(engine, handle.id)
    assert (await engine.process(handle.id).status()).state == {"said": words + "!"}
    outage.away = True
    sending = asyncio.create_task(engine.process(handle.id).signal("more", words))
    await until(lambda: outage.failed >= 3)
    outage.away = False
    await sending
    assert await handle.result(LIMIT) == words + "!" + words
    assert [event.number for event in await handle.history()] == [1, 2, 3]
    assert not (await engine.start(talk.options(key="k"), words)).created
    assert folder.path.exists() == (words == LONG)


async def test_a_process_goes_on_after_its_key_was_rotated(opened: Open) -> None:
    first, _ = await opened(work=True, workflows=FLOWS, codecs=sealed())
    handle = await first.start(talk, "hello")
    await waits(first, handle.id)
    await first.close()
    second, _ = await opened(work=True, workflows=FLOWS, codecs=sealed(new=NEW, old=OLD))
    await second.process(handle.id).signal("more", "you")
    assert await second.process(handle.id).result(timeout=LIMIT) == "hello!you"
    third, _ = await opened(codecs=sealed(new=NEW))
    assert await third.process(handle.id).result(timeout=LIMIT) == "hello!you", (
        "the last commit sealed with the new key"
    )


@pytest.mark.parametrize("wrong", [[Zstd(), AesGcm({"new": NEW})], []], ids=["another key", "no codecs"])
async def test_a_process_that_cannot_be_opened_is_broken_with_the_reason_and_its_neighbours_go_on(
    opened: Open, wrong: list[Codec]
) -> None:
    client, _ = await opened(codecs=sealed())
    lost = await client.start(short, "hello")
    worker, _ = await opened(work=True, workflows=FLOWS, codecs=wrong)
    neighbours = await worker.start_many(short, [(f"{n}",) for n in range(20)])
    assert [await one.result(LIMIT) for one in neighbours] == [f"{n}!" for n in range(20)]
    with pytest.raises(ProcessBroken, match="perdure retry"):
        await client.process(lost.id).result(timeout=LIMIT)
    seen = await worker.process(lost.id).status()
    assert seen.error is not None and seen.error.type == "UnreadablePayload"
    assert "old" in seen.error.message or "PERDURE_SEAL" in seen.error.message
    assert "unreadable" in seen.input and [view.id for view in await worker.list()]
    await worker.close()
    right, _ = await opened(work=True, workflows=FLOWS, codecs=sealed(new=NEW, old=OLD))
    await right.process(lost.id).retry()
    assert await right.process(lost.id).result(timeout=LIMIT) == "hello!"


async def test_a_tampered_history_breaks_its_process_and_no_other(opened: Open) -> None:
    client, _ = await opened(codecs=sealed())
    first, _ = await opened(work=True, workflows=FLOWS, codecs=sealed())
    handles = await first.start_many(talk, [("hello",), ("goodbye",)])
    for handle in handles:
        await waits(first, handle.id)
    await first.close()
    below, _ = await opened(codecs=[])
    row = await below.row(handles[0].id)
    state = bytearray(row.state or b"")
    state[-1] ^= 1
    changed = replace(row, state=bytes(state), version=row.version + 1)
    await until_commit(below, row, changed)
    await opened(work=True, workflows=FLOWS, codecs=sealed())
    for handle in handles:
        await client.process(handle.id).signal("more", "you")
    assert await client.process(handles[1].id).result(timeout=LIMIT) == "goodbye!you"
    with pytest.raises(ProcessBroken, match=r"the state of process .* tampered"):
        await client.process(handles[0].id).result(timeout=LIMIT)


async def until_commit(engine: Engine, row: Any, after: Any) -> None:
    """Write a row past everybody."""
    from perdure.kernel.commit import Commit, Verdict

    [answer] = await engine.store.commit([Commit(row.token, row.version, after)])
    assert answer.verdict is Verdict.APPLIED


async def test_a_signal_that_cannot_be_opened_breaks_the_process_and_is_received_after_a_retry(opened: Open) -> None:
    worker, _ = await opened(work=True, workflows=FLOWS, codecs=sealed())
    stranger, _ = await opened(codecs=sealed(new=NEW))
    handle = await worker.start(talk, "hello")
    await waits(worker, handle.id)
    await stranger.process(handle.id).signal("more", "you")
    row = await until_row(worker, handle.id, lambda row: row.status is not Status.RUNNING)
    assert row.status is Status.BROKEN and row.seen == 0
    await worker.close()
    both, _ = await opened(work=True, workflows=FLOWS, codecs=sealed(old=OLD, new=NEW))
    await both.process(handle.id).retry()
    assert await both.process(handle.id).result(timeout=LIMIT) == "hello!you"


async def test_a_result_that_cannot_be_opened_is_an_error_and_not_a_value(opened: Open) -> None:
    worker, _ = await opened(work=True, workflows=FLOWS, codecs=sealed())
    handle = await worker.start(short, "hello")
    await handle.result(LIMIT)
    for codecs in (sealed(new=NEW), []):
        other, _ = await opened(codecs=codecs)
        with pytest.raises(UnreadablePayload):
            await other.process(handle.id).result(timeout=LIMIT)


async def test_a_failed_process_is_not_retried_by_whoever_cannot_open_its_history(opened: Open) -> None:
    worker, _ = await opened(work=True, workflows=FLOWS, codecs=sealed())
    handle = await worker.start(picky, "hello")
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    stranger, _ = await opened(codecs=sealed(new=NEW))
    with pytest.raises(UnreadablePayload, match="key 'old'"):
        await stranger.process(handle.id).retry()
    with pytest.raises(ProcessFailed):
        await stranger.process(handle.id).result(timeout=LIMIT)
    await worker.process(handle.id).retry()
    with pytest.raises(ProcessFailed):
        await worker.process(handle.id).result(timeout=LIMIT)
    assert (await worker.row(handle.id)).run == 2


async def test_while_the_offload_is_away_a_process_is_put_off_and_not_broken(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PUT_OFF_SECONDS", 0.05)
    folder = Folder(tmp_path / "blobs", above=1000)
    client, _ = await opened(codecs=sealed(), offload=folder)
    handle = await client.start(short, LONG)
    folder.path.rename(tmp_path / "unmounted")
    worker, _ = await opened(work=True, workflows=FLOWS, codecs=sealed(), offload=folder)
    await until_row(client, handle.id, lambda row: row.version >= 2)
    assert await (await worker.start(short, "hello")).result(LIMIT) == "hello!"
    (tmp_path / "unmounted").rename(folder.path)
    assert await client.process(handle.id).result(timeout=LIMIT) == LONG + "!"


@step(retry=Retry.NONE)
async def give_back(words: str) -> None:
    raise ValueError(words)


@step(retry=Retry.NONE, undo=give_back)
async def take(words: str) -> None:
    """What must be given back."""


@workflow
async def undoing(words: str) -> None:
    async with saga():
        await take(words)
        raise ValueError(words)


@workflow
async def forgetful(words: str) -> None:
    async def forgotten() -> None:
        raise ValueError(words)

    async def passed_on() -> None:
        await refuse(words)

    await asyncio.wait([asyncio.create_task(forgotten()), asyncio.create_task(passed_on())])


@pytest.mark.parametrize("seals", [True, False])
async def test_what_is_sealed_in_the_store_does_not_stand_in_our_log(
    opened: Open, caplog: pytest.LogCaptureFixture, seals: bool
) -> None:
    codecs = sealed() if seals else []
    engine, _ = await opened(work=True, workflows=[undoing, forgetful], codecs=codecs)
    await (await engine.start(forgetful, "card 4111")).result(LIMIT)
    with pytest.raises(ProcessBroken, match="card 4111"):
        await (await engine.start(undoing, "card 4111")).result(LIMIT)
    await until(lambda: caplog.text.count("UndoFailed") == 2)  # as an alert, and once the commit of its end is answered
    told = caplog.text
    assert told.count("failed and nobody awaited it") == 2 and "StepError" in told
    assert told.count("ValueError") >= 2
    assert ("card 4111" in told) != seals


async def test_a_fork_of_a_sealed_process_has_payloads_of_its_own_sealed_for_their_places(
    opened: Open, tmp_path: Path
) -> None:
    folder = Folder(tmp_path / "blobs", above=1000)
    engine, _ = await opened(work=True, workflows=FLOWS, codecs=sealed(), offload=folder)
    handle = await engine.start(talk.options(key="k"), LONG)
    await engine.process(handle.id).signal("more", LONG)
    assert await handle.result(LIMIT) == LONG + "!" + LONG
    fork = await handle.fork(key="again")
    assert await fork.result(LIMIT) == LONG + "!" + LONG
    other, _ = await opened(codecs=sealed(new=NEW), offload=folder)
    with pytest.raises(UnreadablePayload):
        await other.process(handle.id).fork()


async def test_a_process_whose_key_was_released_can_begin_again(opened: Open) -> None:
    """Its input was sealed for its key, so that a second start with the key is known as the same."""
    engine, _ = await opened(work=True, workflows=FLOWS, codecs=sealed())
    handle = await engine.start(short.options(key="K-1"), "hello")
    assert await handle.result(LIMIT) == "hello!"
    await handle.release_key(who="anna")
    assert (await handle.status()).input == ["hello"]
    other = await engine.start(short.options(key="K-1"), "another")
    assert other.created and await other.result(LIMIT) == "another!"
    await handle.restart(who="anna")
    assert await handle.result(LIMIT) == "hello!"


HUGE = "x" * 300_000
"""So much is sealed and opened in a thread."""
hung, door = threading.Event(), threading.Event()


def hang() -> None:
    hung.set()
    door.wait(10 * LIMIT)


@step(retry=Retry.NONE, timeout=0.1)
async def look_up() -> None:
    await asyncio.to_thread(hang)


@workflow
async def looks_up() -> str:
    try:
        await look_up()
    except StepError:
        return "given up"
    return "found"


async def test_large_payloads_are_sealed_and_opened_while_a_step_hangs_in_the_threads_of_the_event_loop(
    opened: Open,
) -> None:
    engine, _ = await opened(work=True, workflows=[looks_up, short, talk], codecs=sealed())
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    door.clear()
    hung.clear()
    try:
        assert await (await engine.start(looks_up)).result(LIMIT) == "given up"
        assert hung.is_set(), "its call has the only thread, and keeps it"
        async with asyncio.timeout(LIMIT):
            assert await (await engine.start(short, HUGE)).result() == HUGE + "!"
            talking = await engine.start(talk, "hello")
            await talking.signal("more", HUGE)
            assert await talking.result() == "hello!" + HUGE
    finally:
        door.set()  # else the program would wait for it at its end
