"""Cut claims: a claim reads unheard messages up to so many bytes; what it had to leave is read later, not missed."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import Workflow, receive, workflow
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.runtime.options import WorkerOptions
from perdure.store.sealed.codec import AesGcm
from perdure.store.sealed.offload import Folder
from tests.runtime.conftest import LIMIT, Open, until_row

LARGE = limits.INSIDE_PAYLOAD_BYTES - 100
begun: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _nothing_begun() -> None:
    begun.clear()


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
    handle = await engine.start(collects, "it", 6)
    for _ in range(5):
        await handle.signal("go", noise(LARGE))
    await until_row(engine, handle.id, lambda row: row.owner is None and row.seen == 5)
    await engine.close()
    again, _ = await opened(work=True, workflows=[collects], **settings)
    await again.process(handle.id).signal("go", "")
    assert await again.process(handle.id, int).result(LIMIT) == 5 * LARGE
    assert begun == {"it": 1}


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
