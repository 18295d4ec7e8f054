"""A sealed ground: every store on it is behind codecs and an offload."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from perdure.store.base import Store
from perdure.store.sealed.codec import AesGcm, Codec, Zstd
from perdure.store.sealed.offload import Offload
from perdure.store.sealed.store import SealedStore
from perdure.store.url import sealed
from perdure.testing.clock import Time
from perdure.testing.conformance import Ground

OLD = bytes(range(32))
NEW = bytes(range(32, 64))


def codecs(keys: dict[str, bytes] | None = None) -> list[Codec]:
    """Compression and encryption, by one key unless others are given."""
    return [Zstd(above=64), AesGcm(keys or {"old": OLD})]


class SealedGround:
    """Another ground, with a chain of codecs and an offload before each of its stores."""

    def __init__(self, ground: Ground, chain: Sequence[Codec], offload: Offload | None = None) -> None:
        self.ground = ground
        self.chain = chain
        self.offload = offload
        self.shared, self.lasting = ground.shared, ground.lasting
        self.locks_rows, self.hints = ground.locks_rows, ground.hints
        self.inside = offload is None

    @property
    def time(self) -> Time:
        """The time of the ground below."""
        return self.ground.time

    def bare(self) -> Store:
        """A store that shows what is really kept."""
        return self.ground.store()

    def store(self) -> Store:
        """Another sealed store on the same database."""
        return sealed(self.ground.store(), self.chain, self.offload)

    def locked(self, *processes: bytes) -> AbstractAsyncContextManager[None]:
        """The ground below locks rows."""
        return self.ground.locked(*processes)

    def damages(self, table: str) -> Sequence[str]:
        """Those of the ground below."""
        return self.ground.damages(table)

    async def damage(self, store: Store, id: bytes, table: str, damage: str) -> bool:
        """Damage a row of the ground below, behind the seal."""
        return await self.ground.damage(store.store if isinstance(store, SealedStore) else store, id, table, damage)
