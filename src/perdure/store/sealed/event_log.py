"""The event log of a sealed store: payloads are opened as the codecs say; one that cannot be opened stops no stream."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.kernel.process import Process
from perdure.kernel.stream import CREATED, LoggedEvent, LogPage
from perdure.store.event_log import EventLog
from perdure.store.sealed.blob import Blobs
from perdure.store.sealed.records import RecordOpener
from perdure.store.sealed.seal import Seal


class SealedEventLog:
    """What each method promises stands in ``store/event_log.py``."""

    def __init__(self, log: EventLog, chain: Seal, blobs: Blobs | None) -> None:
        self._log = log
        self._chain = chain
        self._blobs = blobs

    async def read(
        self, behind: int, most: int, size: int, kinds: Sequence[str] | None = None, types: Sequence[int] | None = None
    ) -> LogPage:
        """See EventLog. Payloads that are kept outside are fetched."""
        page = await self._log.read(behind, most, size, kinds, types)
        opener = RecordOpener(self._chain, offload=self._blobs is not None)
        opened = [_opened(opener, one) for one in page.events]
        if self._blobs is not None and opener.wanted:
            opener.fetched = await self._blobs.fetch(opener.wanted)
            opened = [_opened(opener, one) for one in page.events]
        return replace(page, events=tuple(opened))

    async def head(self) -> int:
        """See EventLog."""
        return await self._log.head()

    async def fill(self, stream: str, since: int) -> bool:
        """See EventLog."""
        return await self._log.fill(stream, since)

    async def trim(self) -> bool:
        """See EventLog."""
        return await self._log.trim()


def _opened(opener: RecordOpener, one: LoggedEvent) -> LoggedEvent:
    event = one.event
    if event.type == CREATED:
        process = Process(one.process, one.kind, one.key, event.payload or b"")
        return replace(one, event=replace(event, payload=opener.process(process).input))
    if event.type and event.payload is not None:
        return replace(one, event=opener.event(event, one.process, one.run))
    return one
