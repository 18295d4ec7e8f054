"""A guest behind a chain of codecs: payloads are sealed as outside of the caller's transaction."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from perdure.errors import PayloadTooLarge
from perdure.kernel.commit import Start, StartAnswer, StartVerdict
from perdure.kernel.message import Message, SendAnswer
from perdure.store import seal
from perdure.store.guest import Guest
from perdure.store.sealed import SealedStore
from perdure.store.sealing import Sealing


class SealedGuest(Struct, frozen=True):
    """A guest behind a chain of codecs. What would go outside is refused: no transaction holds an offload."""

    guest: Guest
    store: SealedStore

    @property
    def blocking(self) -> bool:
        """See Guest."""
        return self.guest.blocking

    async def start(self, start: Start) -> StartAnswer:
        """See Guest. A conflict is looked into: the same input may have been sealed with another key then."""
        answer = await self.guest.start(self._inside(Sealing(self.store.seal, None).start(start)))
        if answer.verdict is StartVerdict.CONFLICT:
            for chain in self.store.seal.former():
                other = await self.guest.start(Sealing(chain, None).start(start))
                if other.verdict is not StartVerdict.CONFLICT:
                    return other
        return answer

    async def send(self, message: Message) -> SendAnswer:
        """See Guest."""
        return await self.guest.send(self._inside(Sealing(self.store.seal, None).message(message)))

    def _inside(self, record: Any) -> Any:
        blobs = self.store.blobs
        if blobs is not None and (size := seal.weight(record)) > blobs.offload.above:
            raise PayloadTooLarge(
                f"a payload of {size:,} bytes belongs into the offload, of which a transaction knows nothing. "
                "Pass a smaller one, or start and signal outside of the transaction."
            )
        return record
