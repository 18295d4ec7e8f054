"""Sinks of event streams: the worker that finds one which nobody delivers to, delivers to it.

A stream with a sink has one deliverer at a time, as it has one reader: whoever has its lease. If that worker dies, the
lease ends, and another worker goes on from the position.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from perdure import limits
from perdure.errors import InvalidInput, StoreError, StreamNotFound
from perdure.kernel.stream import EventStream
from perdure.logs import logger
from perdure.loop import Loop
from perdure.runtime.parts import WorkerParts

if TYPE_CHECKING:
    from perdure.streaming.sink import Sink

log = logger("stream")


class SinkDeliveries:
    """What this worker delivers: one task for each stream whose lease it has."""

    def __init__(self, parts: WorkerParts) -> None:
        self._store = parts.store
        self._machine = parts.machine
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._refused: dict[str, str] = {}
        self.loop = Loop("sinks of event streams", self._tick, parts.committer.outage)

    async def _tick(self) -> float:
        """Look which streams have a sink that nobody delivers to."""
        rows = [row for row in await self._store.records(EventStream) if row.sink and row.name not in self._tasks]
        now = await self._store.now() if rows else 0
        for row in rows:
            if not row.held_by_other("", now) and (sink := self._sink(row)) is not None:
                task = asyncio.create_task(self._deliver(row, sink), name=f"perdure delivery of stream {row.name}")
                self._tasks[row.name] = task
                task.add_done_callback(partial(self._ended, row.name))
        return limits.STREAM_LOOK_SECONDS * (0.75 + self._machine.random() / 4)

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        del self._tasks[name]

    def _sink(self, row: EventStream) -> Sink | None:
        """The stream's sink; None if this worker cannot deliver there, which it logs once."""
        from perdure.streaming.sink import sink_for

        try:
            return sink_for(row.sink)
        except InvalidInput as error:
            if self._refused.get(row.name) != row.sink:
                self._refused[row.name] = row.sink
                log.warning("event stream %s cannot be delivered by this worker: %s", row.name, error)
            return None

    async def _deliver(self, row: EventStream, sink: Sink) -> None:
        """Deliver until the stream is removed, gets another sink, or is another worker's."""
        try:
            from perdure.streaming.batches import StreamBatches
            from perdure.streaming.delivery import deliver

            async with StreamBatches(self._store, row.name, self._machine, wait=True, sink=row.sink) as batches:
                await deliver(batches, lambda records: sink.deliver(row.name, records), self._machine)
        except StreamNotFound:
            pass
        except StoreError as error:
            log.warning("event stream %s is not delivered now, and tried again: %s", row.name, error)
        except Exception:
            log.exception("event stream %s: this must not happen; please report it", row.name)
        finally:
            with suppress(Exception):
                await sink.close()

    async def stop(self) -> None:
        """Give every stream back; batches that were not taken by their sinks come again."""
        await self.loop.stop()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
