"""Secrets are planted wherever some are; none stands in a log, an error, a metric, a command line or the database.

What is planted: a password in a URL, the key of a codec, the secret and the address of a sink, and the values of a
process: its input, a result, its state, a signal, and the text of an error.
"""

from __future__ import annotations

import logging
from io import BytesIO
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from perdure import Engine
from perdure.authoring import webhook
from perdure.authoring.step import step
from perdure.authoring.workflow import receive, set_state, workflow
from perdure.errors import PerdureError, ProcessFailed, StoreError
from perdure.kernel.retry import Retry
from perdure.store.sealed.codec import AesGcm
from tests.runtime.conftest import LIMIT, Open, until

VALUES = tuple(f"canary-{place}-7c1f" for place in ("input", "result", "state", "signal", "error"))
KEY = b"canary-key-7c1f-of-32-bytes-long"
ELSEWHERE = ("canary-password-7c1f", "canary-secret-7c1f", "canary-address-7c1f", KEY.decode())


@step(retry=Retry(attempts=2, first=0.0))
async def told(words: str) -> str:
    if words == VALUES[3]:
        raise ValueError(VALUES[4])
    return VALUES[1]


@step(hard=True)
def far(words: str) -> str:
    return words


@workflow
async def secretive(words: str) -> str:
    set_state({"said": VALUES[2]})
    await told(words)
    await far(words)
    return await told(await receive("more", str))


async def stored(url: str) -> bytes:
    """All bytes that the database has."""
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        return b"".join(one.read_bytes() for one in path.parent.glob(f"{path.name}*") if one.is_file())
    connection, whole = await asyncpg.connect(url), BytesIO()
    try:
        for (name,) in await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'perdure'"):
            await connection.copy_from_table(name, schema_name="perdure", output=whole, format="binary")
    finally:
        await connection.close()
    return whole.getvalue()


def command_lines() -> bytes:
    """What everybody on this machine may read of its programs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes())
        except OSError:
            continue  # it has ended
    return b"\n".join(found)


async def test_no_secret_stands_in_a_log_an_error_a_metric_a_command_line_or_the_database(
    opened: Open, store_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv(webhook.SECRET, ELSEWHERE[1])
    seen: list[Any] = []
    engine, _ = await opened(work=True, workflows=[secretive], codecs=[AesGcm({"main": KEY})], on_alert=seen.append)
    await engine.streams.put("audit", to=f"https://127.0.0.1:1/{ELSEWHERE[2]}")
    handle = await engine.start(secretive.options(key="A-1"), VALUES[0])
    await until(lambda: any("were not taken" in one.getMessage() for one in caplog.records))
    await handle.signal("more", VALUES[3])
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    lines = command_lines()
    stranger, _ = await opened(work=True, workflows=[secretive])
    with pytest.raises(PerdureError) as unread:
        await stranger.process(handle.id).result(timeout=LIMIT)
    with pytest.raises(StoreError) as away:
        await Engine(f"postgresql://ann:{ELSEWHERE[0]}@127.0.0.1:1/shop").__aenter__()
    views = [*await engine.streams.list(), engine, stranger, engine.metrics(), stranger.metrics()]
    said = "\n".join([caplog.text, *map(repr, views), str(unread.value), str(away.value), repr(away.value)])
    for secret in (*VALUES, *ELSEWHERE):
        assert secret not in said, said[max(0, said.index(secret) - 200) :][:400]
        assert secret.encode() not in lines
    whole = await stored(store_url)
    assert b"secretive" in whole, "that is what is looked through"
    for secret in (*VALUES, KEY.decode(), ELSEWHERE[1]):
        assert secret.encode() not in whole
