"""Which store a URL means, and what stands before it."""

from __future__ import annotations

from collections.abc import Sequence

from perdure import limits
from perdure.clock import Machine
from perdure.errors import DefinitionError, InvalidUrl
from perdure.store.base import Store
from perdure.store.codec import Codec
from perdure.store.offload import Offload


def store_for(url: str, machine: Machine) -> Store:
    """The store that ``url`` names, not opened yet; raises InvalidUrl."""
    scheme = url.partition(":")[0].lower()
    if scheme == "sqlite":
        from perdure.store.sqlite import SqliteStore

        return SqliteStore(url, machine=machine)
    if scheme in ("postgresql", "postgres"):
        from perdure.store.postgres import PostgresStore

        return PostgresStore(url, machine=machine)
    raise InvalidUrl(
        f"no store is known for a URL that begins with {scheme[:20]!r}; "
        "use sqlite:///file.db or postgresql://user@host/database"
    )


def sealed(store: Store, codecs: Sequence[Codec], offload: Offload | None) -> Store:
    """The store behind these codecs and this offload; the store itself if there are none. Raises DefinitionError."""
    if offload is None and limits.PAYLOAD_BYTES > limits.INSIDE_PAYLOAD_BYTES:
        raise DefinitionError(
            f"PERDURE_PAYLOAD_BYTES allows {limits.PAYLOAD_BYTES:,} bytes, more than a database should keep in a row "
            f"({limits.INSIDE_PAYLOAD_BYTES:,}). Give the engine an offload, or take it back."
        )
    if not codecs and offload is None:
        return store
    from perdure.store.blob import Blobs
    from perdure.store.seal import Seal
    from perdure.store.sealed import SealedStore

    return SealedStore(store, Seal(codecs), None if offload is None else Blobs(offload))
