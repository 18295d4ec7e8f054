"""Cut answers: what a claim or a read had to leave of an inbox is read later; it is neither missed nor overtaken."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import Workflow, receive, workflow
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.kernel.message import Message, MessageType
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.runtime import inbox_reader
from perdure.runtime.options import WorkerOptions
from perdure.store.sealed.codec import AesGcm
from perdure.store.sealed.offload import Folder
from perdure.testing.faults import Gate
from tests.runtime.conftest import LIMIT, Open, until, until_row

SIGNAL, TERMINATE = MessageType.SIGNAL, MessageType.TERMINATE
LARGE = limits.INSIDE_PAYLOAD_BYTES - 100
begun: Counter[str] = Counter()
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)


@pytest.fixture(autouse=True)
def _nothing_begun() -> None:
    begun.clear()
    gates.clear()


@pytest.fixture(params=["plain", "sealed", "outside"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Settings of the engines of one test: payloads stay as they are, are sealed, or are kept outside too."""
    codecs = {} if request.param == "plain" else {"codecs": [AesGcm({"key": bytes(32)})]}
    return codecs | ({"offload": Folder(tmp_path / "blobs")} if request.param == "outside" else {})


def noise(size: int) -> str:
    """A text of so many bytes that does not shrink when it is compressed."""
    return random.Random(size).randbytes(size).hex()[:size]


@step
async def begin(name: str) -> None:
    begun[name] += 1


@workflow
async def waits(name: str) -> str:
    await begin(name)
    return await receive("go", str)


async def asleep(engine: Engine, code: Workflow[[str], Any], count: int) -> list[Handle[Any]]:
    """So many processes, by their ids, that wait for a signal and that no worker holds."""
    handles = [await engine.start(code, f"{n}") for n in range(count)]
    for handle in handles:
        await until_row(engine, handle.id, lambda row: row.owner is None and row.awaiting is not None)
    return sorted(handles, key=lambda handle: handle.id_bytes)


@pytest.mark.parametrize(
    ("read", "cut"),
    [([], b""), ([SIGNAL], b"a"), ([SIGNAL, SIGNAL], b"b"), ([TERMINATE], b"a"), ([SIGNAL, TERMINATE], b"a")],
)
def test_an_order_to_end_which_is_read_ahead_of_what_an_answer_has_left_hides_nothing_that_was_left(
    monkeypatch: pytest.MonkeyPatch, read: list[MessageType], cut: bytes
) -> None:
    messages = [Message(b"m" * 16, bytes([97 + n]), type, payload=b"{}", number=1) for n, type in enumerate(read)]
    assert inbox_reader._cut(messages) == b""
    monkeypatch.setattr(limits, "HEARD_BYTES", 2)
    assert inbox_reader._cut(messages) == cut


@pytest.mark.parametrize("cached", [True, False], ids=["from memory", "by a replay"])
async def test_a_process_whose_messages_the_claim_had_to_leave_hears_them_and_begins_nothing_again(
    opened: Open, settings: dict[str, Any], cached: bool
) -> None:
    options = WorkerOptions(missing={"waits": {"restart": 2}})
    engine, _ = await opened(work=True, workflows=[waits], options=options, **settings)
    low, high = await asleep(engine, waits, 2)
    worker = engine.worker
    assert worker is not None
    if cached:
        await worker.claimer.loop.stop()
    else:
        await engine.close()
    client, _ = await opened(**settings)
    for _ in range(5):
        await client.process(low.id).signal("noise", noise(LARGE))
    await client.process(high.id).signal("go", "on")
    if cached:
        worker.claimer.loop.start()
    else:
        await opened(work=True, workflows=[waits], options=options, **settings)
    assert await client.process(high.id, str).result(LIMIT) == "on"
    await client.process(low.id).signal("go", "too")
    assert await client.process(low.id, str).result(LIMIT) == "too"
    assert begun == {"0": 1, "1": 1}


@workflow
async def collects(name: str, letters: int) -> int:
    await begin(name)
    return sum([len(await receive("go", str)) for _ in range(letters)])


async def test_a_history_that_has_received_more_than_one_claim_reads_unheard_is_replayed(
    opened: Open, settings: dict[str, Any]
) -> None:
    engine, _ = await opened(work=True, workflows=[collects], **settings)
    handle = await engine.start(collects, "it", 7)
    for _ in range(6):
        await handle.signal("go", noise(LARGE))
    await until_row(engine, handle.id, lambda row: row.owner is None and row.seen == 6)
    await engine.close()
    again, _ = await opened(work=True, workflows=[collects], **settings)
    await again.process(handle.id).signal("go", "")
    assert await again.process(handle.id, int).result(LIMIT) == 6 * LARGE
    assert begun == {"it": 1}


async def test_histories_that_have_received_one_signal_each_are_replayed_in_one_claim_however_many_they_are(
    opened: Open, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEARD_BYTES", 20_000)
    text = noise(10_000)
    engine, _ = await opened(work=True, workflows=[collects], **settings)
    handles = [await engine.start(collects, f"{n}", 2) for n in range(10)]
    for handle in handles:
        await handle.signal("go", text)
    for handle in handles:
        await until_row(engine, handle.id, lambda row: row.owner is None and row.seen == 1)
    await engine.close()
    client, _ = await opened(**settings)
    for handle in handles:
        await client.process(handle.id).signal("go", "")
    again, _ = await opened(work=True, workflows=[collects], **settings)
    assert [await again.process(handle.id, int).result(LIMIT) for handle in handles] == [len(text)] * 10
    assert begun == {f"{n}": 1 for n in range(10)}


async def test_an_inbox_that_no_claim_reads_at_once_is_heard_to_its_end(
    opened: Open, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEARD_BYTES", 1)
    engine, _ = await opened(work=True, workflows=[collects], **settings)
    handles = [await engine.start(collects, f"{n}", 3) for n in range(5)]
    for handle in handles:
        await until_row(engine, handle.id, lambda row: row.owner is None and row.awaiting is not None)
    await engine.close()
    client, _ = await opened(**settings)
    for handle in handles:
        for text in ("a", "bb", "ccc"):
            await client.process(handle.id).signal("go", text)
    again, _ = await opened(work=True, workflows=[collects], **settings)
    assert [await again.process(handle.id, int).result(LIMIT) for handle in handles] == [6] * 5
    assert begun == {f"{n}": 1 for n in range(5)}


@step(retry=Retry.NONE)
async def gated(name: str) -> None:
    begun[name] += 1
    await gates[name].wait()


@workflow
async def working(name: str) -> str:
    """It stays with its worker while it waits, since a step is under way."""
    work = asyncio.create_task(gated("done"))
    await gated(name)
    letter = await receive("go", str)
    await work
    return letter


async def test_while_the_offload_is_away_a_process_whose_letters_were_left_is_not_taken_for_damaged(
    opened: Open, tmp_path: Path
) -> None:
    """Two processes are read for at once; the first has more than one read holds, and none of it can be fetched."""
    folder = Folder(tmp_path / "blobs")
    engine, store = await opened(work=True, workflows=[working], offload=folder)
    client, _ = await opened(offload=folder)
    handles = [await engine.start(working, name) for name in ("first", "second", "third")]
    await until(lambda: begun["done"] == 3 and len(begun) == 4)
    _, low, high = sorted(handles, key=lambda handle: handle.id_bytes)
    worker, gate = engine.worker, Gate("commit")
    assert worker is not None
    instances, store.before = worker.scheduler.instances, gate
    gates["first"].set()
    await asyncio.wait_for(gate.reached.wait(), LIMIT)  # the next two commits go together, once this one is answered
    for name in ("second", "third"):
        gates[name].set()
    await until(lambda: all(instances[one.id_bytes].commit is not None for one in (low, high)))
    for _ in range(5):
        await client.process(low.id).signal("go", noise(LARGE))
    await client.process(high.id).signal("go", "on")
    folder.path.rename(tmp_path / "unmounted")
    gate.open.set()
    gates["done"].set()
    assert await engine.process(high.id, str).result(LIMIT) == "on"
    assert (await client.row(low.id)).status is Status.RUNNING


@workflow
async def hears_both() -> list[int]:
    await gated("work")

    async def hear(name: str, count: int) -> int:
        return sum([len(await receive(name, str)) for _ in range(count)])

    return await asyncio.gather(hear("a", 8), hear("b", 2))


async def test_of_letters_of_two_names_that_wait_those_of_one_do_not_hide_those_of_the_other(
    opened: Open, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAILBOX_BYTES", 0)  # letters that nobody awaits are left in the store
    engine, _ = await opened(work=True, workflows=[hears_both], **settings)
    handle = await engine.start(hears_both)
    await until(lambda: begun["work"] == 1)
    for _ in range(8):
        await handle.signal("a", noise(LARGE))
    await handle.signal("b", "one")
    worker = engine.worker
    assert worker is not None
    await until(lambda: worker.scheduler.instances[handle.id_bytes].inbox.heard == 9)
    gates["work"].set()
    await until(lambda: not worker.scheduler.instances[handle.id_bytes].inbox.fetching)
    await handle.signal("b", "another")
    assert await handle.result(LIMIT) == [8 * LARGE, len("one") + len("another")]
