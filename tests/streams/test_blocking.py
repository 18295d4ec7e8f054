"""A program without an event loop follows a stream: what it does with a batch may take long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from perdure import BlockingEngine
from perdure.streaming.record import StreamRecord
from tests.runtime.conftest import LIMIT
from tests.streams.flows import HOSTED, parcel


async def test_what_follows_a_stream_in_a_program_without_an_event_loop_may_wait_for_what_needs_its_threads(
    sqlite_url: str,
) -> None:
    free: list[bool] = []

    def program() -> None:
        with BlockingEngine(sqlite_url, work=True, workflows=HOSTED) as engine:
            loop = engine._thread.loop

            def consume(batch: Sequence[StreamRecord]) -> None:
                done = threading.Event()
                loop.call_soon_threadsafe(lambda: loop.run_in_executor(None, done.set))
                free.append(done.wait(LIMIT))

            loop.call_soon_threadsafe(loop.set_default_executor, ThreadPoolExecutor(1))
            engine.streams.put("audit")
            engine.start(parcel, "tea").result(20)
            engine.streams.follow("audit", consume, wait=False)

    await asyncio.to_thread(program)
    assert free and all(free)
