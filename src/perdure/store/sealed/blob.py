"""Blobs: payloads kept outside the database, put before they are referred to, fetched when they are wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct

from perdure.errors import PerdureError, StoreUnavailable, UnreadablePayload
from perdure.kernel.names import id_text
from perdure.limits import RECONNECT_CAP_SECONDS, RECONNECT_FIRST_SECONDS
from perdure.logs import logger
from perdure.store.sealed.offload import Offload

log = logger("store")

PATIENCE_SECONDS = 0.25
"""How long a batch waits for the blobs it needs; records whose blobs are slower are set aside, the others go on."""

AT_ONCE = 16
"""How many blobs are put or fetched at the same time."""

FETCH_SECONDS = 10.0
"""After this a blob counts as out of reach: the lease of the claim that wants it must not lapse meanwhile."""

FRESH_SECONDS = 60.0
"""For so long, but at most a tenth of the grace, a blob that was put is not put again: it cannot have grown old."""

BlobPlace = tuple[bytes, str]
"""A blob's process and name."""

Fetched = dict[BlobPlace, bytes | PerdureError]


class Blob(Struct, frozen=True, gc=False):
    """One payload that must be outside before its commit is written."""

    process: bytes
    name: str
    content: bytes

    @property
    def place(self) -> BlobPlace:
        """Where it is kept."""
        return self.process, self.name


class Blobs:
    """What is on its way to the offload and back. A put that fails is tried again until the store is closed."""

    def __init__(self, offload: Offload) -> None:
        self.offload = offload
        self._puts: dict[BlobPlace, asyncio.Task[None]] = {}
        self._fresh: dict[BlobPlace, float] = {}  # the oldest first
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._looked: bytes = b""

    def open(self) -> None:
        """Begin, on the running event loop."""
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._fresh.clear()

    async def close(self) -> None:
        """Stop putting: a later sweep removes blobs that are outside already and to which nothing refers."""
        puts = list(self._puts.values())
        self._puts.clear()
        for put in puts:
            put.cancel()
        if puts:
            await asyncio.wait(puts)

    # -- putting ---------------------------------------------------------------------------------------------------

    async def put(self, blobs: Iterable[Blob]) -> None:
        """Begin to put blobs, and wait a moment for them; :meth:`there` says which are stored."""
        begun = []
        self._age()
        for blob in blobs:
            if blob.place not in self._fresh and blob.place not in self._puts:
                put = asyncio.create_task(self._put(blob), name="perdure blob")
                self._puts[blob.place] = put
                begun.append(put)
        if begun:
            await asyncio.wait(begun, timeout=PATIENCE_SECONDS)

    def there(self, blobs: Iterable[Blob]) -> bool:
        """Whether all these blobs are durable outside."""
        return all(blob.place in self._fresh or self._put_is_done(blob.place) for blob in blobs)

    def forget(self, blobs: Iterable[Blob]) -> None:
        """Forget blobs whose commit is being written. If it is sent much later, they are put again, to be young."""
        now = asyncio.get_running_loop().time()
        for blob in blobs:
            if self._puts.pop(blob.place, None) is not None:
                self._fresh[blob.place] = now

    def _put_is_done(self, place: BlobPlace) -> bool:
        put = self._puts.get(place)
        return put is not None and put.done() and not put.cancelled()

    def _age(self) -> None:
        """Forget blobs that were put too long ago to count as young."""
        before = asyncio.get_running_loop().time() - min(FRESH_SECONDS, self.offload.grace / 10)
        while self._fresh and next(iter(self._fresh.values())) <= before:
            del self._fresh[next(iter(self._fresh))]

    async def _put(self, blob: Blob) -> None:
        wait = RECONNECT_FIRST_SECONDS
        while True:
            try:
                async with self._gate:
                    await self.offload.put(blob.process, blob.name, blob.content)
                return
            except Exception as error:  # whatever an offload raises: the blob's process waits, the others go on
                if wait == RECONNECT_FIRST_SECONDS:
                    log.warning(
                        "a blob of process %s cannot be put outside and is tried again: %s: %s",
                        id_text(blob.process), type(error).__name__, error,
                    )  # fmt: skip
            await asyncio.sleep(wait)
            wait = min(wait * 2, RECONNECT_CAP_SECONDS)

    # -- fetching --------------------------------------------------------------------------------------------------

    async def fetch(self, places: Iterable[BlobPlace]) -> Fetched:
        """Each blob, or the error for which it cannot be read."""
        wanted = list(places)
        found = await asyncio.gather(*(self._get(*place) for place in wanted))
        return dict(zip(wanted, found, strict=True))

    async def _get(self, process: bytes, name: str) -> bytes | PerdureError:
        try:
            async with asyncio.timeout(FETCH_SECONDS), self._gate:
                blob = await self.offload.get(process, name)
        except LookupError:
            return UnreadablePayload(
                "it is kept outside the database, and is not there. Bring the blob back, or give this engine the same "
                "offload as the others; if its process is broken by now, run `perdure retry` then."
            )
        except Exception as error:
            return StoreUnavailable(
                f"it is kept outside the database, where it cannot be reached now ({type(error).__name__}: {error}); "
                "try again"
            )
        if sha256(blob).hexdigest() != name:
            return UnreadablePayload("it is kept outside the database, and was changed there. Restore the blob.")
        return blob

    # -- removing --------------------------------------------------------------------------------------------------

    async def sweep(
        self, kept: Callable[[Sequence[bytes]], Coroutine[Any, Any, dict[bytes, set[str]]]], limit: int
    ) -> int:
        """Remove old blobs to which nothing refers, of the next ``limit`` processes, round and round.

        ``kept`` gives the names to which the processes refer; it is called after the blobs were listed. So an old blob
        that is not among them is not needed any more, unless its commit is sent again, which makes the blob young.
        """
        old = await self.offload.old(self._looked, limit)
        self._looked = old[-1][0] if len(old) == limit else b""
        old = [(process, names) for process, names in old if names]
        if not old:
            return 0
        needed = await kept([process for process, _ in old])
        removed = 0
        for process, names in old:
            left = [name for name in names if name not in needed.get(process, ())]
            if left:
                await self.offload.delete(process, left)
                removed += len(left)
        return removed
