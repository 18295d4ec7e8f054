"""A bucket: an offload in an object store (S3 and its kin), by way of the library obstore."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from perdure.errors import DefinitionError
from perdure.limits import OFFLOAD_ABOVE_BYTES, OFFLOAD_GRACE_SECONDS
from perdure.store.grace import checked


class Bucket:
    """An offload in an object store: ``Bucket(obstore.store.S3Store("clinic", ...), prefix="perdure/")``.

    The store of obstore knows the endpoint and the credentials. Ages are told by the object store's own clock. It
    cannot look at an age and remove in one go: let ``grace`` be longer than the database was ever away.
    """

    def __init__(
        self,
        store: Any,
        *,
        prefix: str = "perdure/",
        above: int = OFFLOAD_ABOVE_BYTES,
        grace: float = OFFLOAD_GRACE_SECONDS,
    ) -> None:
        try:
            import obstore
        except ImportError as error:
            raise DefinitionError("Bucket needs a library that is not installed. Run: pip install obstore") from error
        self._library: Any = obstore
        self._store = store
        self._prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""
        self.above = above
        self.grace = checked(grace)

    async def put(self, process: bytes, name: str, blob: bytes) -> None:
        """Put the object, again if it is there: so it is young again."""
        await self._library.put_async(self._store, self._path(process, name), blob)

    async def get(self, process: bytes, name: str) -> bytes:
        """The object; raises LookupError if there is none."""
        try:
            answer = await self._library.get_async(self._store, self._path(process, name))
            return bytes(await answer.bytes_async())
        except FileNotFoundError:
            raise LookupError(name) from None

    async def old(self, after: bytes, limit: int) -> list[tuple[bytes, list[str]]]:
        """Look at the objects of up to ``limit`` processes, in the order of their ids."""
        before = await self._now() - timedelta(seconds=self.grace)
        found: dict[bytes, list[str]] = {}
        start = f"{self._prefix}{after.hex()}/~" if after else None
        async for chunk in self._library.list(self._store, prefix=self._prefix or None, offset=start):
            for entry in sorted(chunk, key=lambda entry: str(entry["path"])):
                id, _, name = entry["path"][len(self._prefix) :].partition("/")
                process = _id(id)
                if process is None or process <= after:
                    continue
                if process not in found and len(found) == limit:
                    return list(found.items())
                names = found.setdefault(process, [])
                if entry["last_modified"] <= before:
                    names.append(name)
        return list(found.items())

    async def delete(self, process: bytes, names: Sequence[str]) -> None:
        """Remove those objects that are still older than the grace."""
        before = await self._now() - timedelta(seconds=self.grace)
        for name in names:
            path = self._path(process, name)
            try:
                entry = await self._library.head_async(self._store, path)
                # Put again between these two it is lost; only a commit sent again after a whole grace does that.
                if entry["last_modified"] <= before:
                    await self._library.delete_async(self._store, path)
            except FileNotFoundError:
                pass  # somebody else was quicker

    def _path(self, process: bytes, name: str) -> str:
        return f"{self._prefix}{process.hex()}/{name}"

    async def _now(self) -> Any:
        """The time as the object store tells it."""
        path = f"{self._prefix}clock"
        await self._library.put_async(self._store, path, b"")
        return (await self._library.head_async(self._store, path))["last_modified"]

    def __repr__(self) -> str:
        return f"Bucket(prefix={self._prefix!r}, above={self.above}, grace={self.grace})"


def _id(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None
