"""The offload: where large payloads are kept outside the database, as blobs that belong to their process.

A blob is put before the commit that refers to it and never changed, so a crash in between leaves one too many, never
one too few. A blob to which nothing refers is removed once it is older than a grace. Blobs are kept in a folder, or in
a bucket of an object store (S3 and its kin) by way of the library obstore.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from perdure.errors import DefinitionError
from perdure.futures import DaemonThreads
from perdure.limits import OFFLOAD_ABOVE_BYTES, OFFLOAD_GRACE_SECONDS

__all__ = ["Bucket", "Folder", "Offload"]

SHORTEST_GRACE_SECONDS = 3600.0


def checked(grace: float) -> float:
    """``grace`` in seconds, or DefinitionError if it is under an hour: a commit waits while the database is away."""
    if grace < SHORTEST_GRACE_SECONDS:
        raise DefinitionError(
            f"a grace of {grace:g} s could remove what a commit under way refers to. "
            f"Give at least {SHORTEST_GRACE_SECONDS:g} s, or leave it out."
        )
    return grace


ID_BYTES = 16
SHELF_DIGITS = 7
"""The first digits of a process id, which are its time, in steps of some 18 minutes."""

THREADS = 16
"""In so many threads of its own a folder is read and written."""

T = TypeVar("T")

TRIES = 10
"""How often a folder is made again that other workers remove at the same time."""


class Offload(Protocol):
    """Keeps blobs by process id and name. Any error but LookupError means: not now, try again.

    Payloads that take more than ``above`` bytes once they are sealed are kept here. A blob younger than ``grace``
    seconds is never removed: a commit that refers to it may be under way.
    """

    above: int
    grace: float

    async def put(self, process: bytes, name: str, blob: bytes) -> None:
        """Keep a blob; durable when this returns. One that is there already is young again afterwards."""

    async def get(self, process: bytes, name: str) -> bytes:
        """The blob; raises LookupError if there is none."""

    async def old(self, after: bytes, limit: int) -> list[tuple[bytes, list[str]]]:
        """Blobs older than the grace: names by process, in the order of ids after ``after``, ``limit`` processes."""

    async def delete(self, process: bytes, names: Sequence[str]) -> None:
        """Remove those of the blobs that are (still) older than the grace."""


class Folder:
    """An offload in a folder of files, which every worker and client must reach under some path.

    ``0192f0c/0192f0c1…/<name>``: processes that were started within the same 18 minutes lie together. A file is written
    aside, synced, renamed, and its folder synced. Ages are told by the folder's own clock, so machines need not agree.
    Raises DefinitionError if ``grace`` is under an hour: a commit waits while the database is away.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, above: int = OFFLOAD_ABOVE_BYTES, grace: float = OFFLOAD_GRACE_SECONDS
    ) -> None:
        self.path = Path(path).absolute()
        self.above = above
        self.grace = checked(grace)
        self._threads: DaemonThreads | None = None
        self._threads_of = 0

    async def put(self, process: bytes, name: str, blob: bytes) -> None:
        """Write the file, or touch it if it is there."""
        await self._in_thread(self._put, process, name, blob)

    async def get(self, process: bytes, name: str) -> bytes:
        """Read the file; raises LookupError if there is none."""
        place = self._home(process) / name
        try:
            return await self._in_thread(place.read_bytes)
        except FileNotFoundError:
            if not self.path.is_dir():
                raise OSError(f"there is no folder {self.path}: is it mounted here?") from None
            raise LookupError(name) from None

    async def old(self, after: bytes, limit: int) -> list[tuple[bytes, list[str]]]:
        """Look at the folders of up to ``limit`` processes; those without old files are left out of the answer."""
        return await self._in_thread(self._old, after, limit)

    async def delete(self, process: bytes, names: Sequence[str]) -> None:
        """Remove files, and folders that are empty then."""
        await self._in_thread(self._delete, process, names)

    async def _in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Call it in a thread of the folder's own: while its file server hangs, the event loop's threads stay free."""
        if self._threads_of != os.getpid():  # threads do not survive a fork
            self._threads_of, self._threads = os.getpid(), DaemonThreads(THREADS, "perdure folder")
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *args))

    def _home(self, process: bytes) -> Path:
        id = process.hex()
        return self.path / id[:SHELF_DIGITS] / id

    def _put(self, process: bytes, name: str, blob: bytes) -> None:
        home = self._home(process)
        for last in range(TRIES, 0, -1):
            try:
                self._make(home)
                with _locked(home, fcntl.LOCK_SH):
                    _write(home, name, blob)
                    return
            except (FileNotFoundError, FileExistsError):  # removed as empty; the latter: between mkdir's two looks
                if last == 1:
                    raise

    def _make(self, home: Path) -> None:
        """Make the folder of a process, durably."""
        new = not self.path.is_dir()
        home.mkdir(parents=True, exist_ok=True)
        # Also if the folders were there: their maker may have died before this.
        for folder in (home.parent, self.path, *([self.path.parent] if new else ())):
            _sync(folder)

    def _old(self, after: bytes, limit: int) -> list[tuple[bytes, list[str]]]:
        found: list[tuple[bytes, list[str]]] = []
        if not self.path.is_dir():
            return found
        begin = after.hex()
        before = self._now() - self.grace
        looked = 0
        for shelf in _folders(self.path, begin[:SHELF_DIGITS], SHELF_DIGITS):
            for home in _folders(shelf, begin, 2 * ID_BYTES):
                if home.name == begin:
                    continue
                names = [one.name for one in _files(home) if one.stat().st_mtime <= before]
                found.append((bytes.fromhex(home.name), names))
                looked += 1
                if looked == limit:
                    return found
        return found

    def _delete(self, process: bytes, names: Sequence[str]) -> None:
        home = self._home(process)
        with suppress(FileNotFoundError), _locked(home, fcntl.LOCK_EX):
            before = self._now() - self.grace
            for name in names:
                place = home / name
                # Checked under the lock: a put of the same blob either has made it young, or writes it again later.
                with suppress(FileNotFoundError):
                    if place.stat().st_mtime <= before:
                        place.unlink()
            with suppress(OSError):  # not empty: fine
                home.rmdir()
                home.parent.rmdir()

    def _now(self) -> float:
        """The time as this folder's files tell it."""
        with tempfile.TemporaryFile(dir=self.path) as probe:
            return os.fstat(probe.fileno()).st_mtime

    def __repr__(self) -> str:
        return f"Folder({str(self.path)!r}, above={self.above}, grace={self.grace})"


def _write(home: Path, name: str, blob: bytes) -> None:
    place = home / name
    try:
        with place.open("rb") as there:
            if os.fstat(there.fileno()).st_size == len(blob):
                os.utime(there.fileno())
                os.fsync(there.fileno())
                _sync(home)  # its writer may have died before this
                return
    except FileNotFoundError:
        pass
    number, aside = tempfile.mkstemp(dir=home, prefix=".")
    os.close(number)
    os.unlink(aside)
    try:
        # Made again, since only its owner may read a file of mkstemp: this one has the rights that the umask allows.
        number = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(number, "wb") as file:
            file.write(blob)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, place)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(aside)
        raise
    # If we die here the file may or may not be there after a power cut; nothing refers to it yet.
    _sync(home)


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    """Hold a folder's lock: many may put at once, a delete runs alone."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(number, how)
        yield
    finally:
        os.close(number)


def _folders(path: Path, begin: str, digits: int) -> list[Path]:
    """The folders in a folder that have hexadecimal names of that length, from ``begin`` on, in order."""
    try:
        every = sorted(path.iterdir())
    except FileNotFoundError:
        return []
    return [one for one in every if len(one.name) == digits and one.name >= begin and not set(one.name) - _HEX]


def _files(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except FileNotFoundError:
        return []


_HEX = set("0123456789abcdef")


class Bucket:
    """An offload in an object store: ``Bucket(obstore.store.S3Store("clinic", ...), prefix="perdure/")``.

    The store of obstore knows the endpoint and the credentials. Ages are told by the object store's own clock. An
    object store cannot check an age and remove in one operation: let ``grace`` be longer than any outage of the
    database.
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
                # An object put again between these calls is lost; only a commit sent again after a grace does that.
                if entry["last_modified"] <= before:
                    await self._library.delete_async(self._store, path)
            except FileNotFoundError:
                pass  # another worker has removed it

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
