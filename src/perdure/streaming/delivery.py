"""Delivery: batches of an event stream are handed on, each until it is taken, with longer and longer pauses between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from perdure import limits
from perdure.clock import Computer
from perdure.errors import StoreError
from perdure.logs import logger
from perdure.streaming.batches import StreamBatches
from perdure.streaming.record import StreamRecord

log = logger("stream")

Consumer = Callable[[Sequence[StreamRecord]], Awaitable[object]]
"""Takes a batch; if it raises, the batch was not taken, and comes again."""


async def deliver(batches: StreamBatches, consume: Consumer, machine: Computer) -> None:
    """Hand every batch to the consumer, in order, until the batches end or the stream is removed.

    An error of the consumer stops this stream alone: it is logged, it stands in the stream's row, and the same batch
    comes again after 1, 2, 4 … seconds, at most a minute. Raises StreamNotFound, IllegalMove, StoreError.
    """
    async for batch in batches:
        while error := await _error(batches, consume, batch):
            failures = await _noted(batches, error)
            await asyncio.sleep(pause_after(failures) * (0.75 + machine.random() / 4))
            if not batches.ours:  # another reader has it now, or another sink: it begins with this batch
                batches.not_handled()
                break


def pause_after(failures: int) -> float:
    """Seconds until a batch comes again that was not taken so often in a row."""
    doubled = 2.0 ** min(failures - 1, 60)  # a sink that is away for days has failed thousands of times
    return min(limits.STREAM_RETRY_SECONDS * doubled, limits.STREAM_RETRY_CAP_SECONDS)


async def _error(batches: StreamBatches, consume: Consumer, batch: Sequence[StreamRecord]) -> str:
    """Hand a batch to the consumer; why it was not taken, or an empty text."""
    try:
        await consume(batch)
    except Exception as raised:
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # a driver may tell of its broken connection instead
            raise asyncio.CancelledError from raised
        error = f"{type(raised).__name__}: {raised}"
        log.warning(
            "event stream %s: %d records up to position %d were not taken, and come again: %s",
            batches.reader.name, len(batch), batch[-1].position, error,
        )  # fmt: skip
        return error
    return ""


async def _noted(batches: StreamBatches, error: str) -> int:
    """Note the failure in the row; how often it has failed in a row, 1 if that is not known."""
    try:
        return max(await batches.reader.failed(error), 1)
    except StoreError:
        return 1
