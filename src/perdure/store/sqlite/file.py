"""Where a SQLite store lies: its URL read, its file, and the folder of its lock files."""

from __future__ import annotations

import os
from errno import EISDIR
from pathlib import Path
from threading import Lock
from urllib.parse import unquote

from msgspec import Struct

from perdure.errors import InvalidUrl, StoreError, StoreTooOld, StoreUnavailable
from perdure.exhaustion import exhausted

_SHAPE = "write sqlite:///shop.db, sqlite:////var/lib/shop.db or sqlite://:memory:"

_creating = Lock()


class SqliteFile(Struct, frozen=True):
    """The place of one database; ``path`` is None for one in memory, which lives as long as its store object."""

    path: str | None

    @property
    def locks(self) -> Path | None:
        """The folder that holds one lock file per incarnation, beside the database."""
        return None if self.path is None else Path(self.path + "-workers")

    def prepare(self, *, create: bool) -> None:
        """Create an empty file that only this user can read, if there is none; without ``create`` raise StoreTooOld.

        An existing file is not opened: closing it would free all locks that SQLite holds on it in this OS process
        (POSIX). Another OS process could then remove the log of writes under the connections that use it.
        """
        if self.path is None:
            return
        if not create and not os.path.exists(self.path):
            raise StoreTooOld(
                f"there is no database {self.path}. Name yours with --url or PERDURE_URL. A worker makes a new one, "
                "and so do `perdure migrate` and Engine(migrate=True)"
            )
        try:
            with _creating:  # no other thread opens the file before it is closed here
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            if os.path.isdir(self.path):
                raise self._unfit(os.strerror(EISDIR)) from None
        except PermissionError:
            return  # SQLite's error code will say what is not permitted
        except OSError as error:
            if (what := exhausted(error)) is not None:
                raise StoreUnavailable(f"the system refuses this OS process {what} ({error.strerror})") from None
            raise self._unfit(error.strerror) from None

    def _unfit(self, why: str | None) -> StoreError:
        return StoreError(
            f"the database {self.path} cannot be opened ({why}); "
            "check that its folder exists and that the path names a file"
        )


class SameFile:
    """Whether the database still stands at its path: what is written to a removed or replaced file is lost."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._opened: tuple[int, int] | None = None

    def begin(self) -> None:
        """Take note of the file that is opened now."""
        self._opened = self._file()

    def check(self) -> None:
        """Raise StoreUnavailable while another file is there, or none."""
        if self._opened is None or self._file() == self._opened:
            return
        # StoreUnavailable, which is not final: the leases lapse by themselves, and the file may be moved back.
        raise StoreUnavailable(
            f"the database {self._path} was removed or replaced while it was open, nothing is written any more; "
            "stop this worker, put the database in its place, then start the worker again"
        )

    def _file(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return None
        except OSError:
            return self._opened  # unknown
        return found.st_dev, found.st_ino


class LogFile:
    """The log of writes beside a database, as one connection has it open: what is written to a removed one is lost."""

    def __init__(self, path: str) -> None:
        self.path = path + "-wal"
        self._opened: tuple[int, int] | None = None

    def lost(self) -> bool:
        """Whether the file of the first look was replaced or removed: SQLite itself keeps it while it is open."""
        try:
            found = os.stat(self.path)
        except OSError:
            return self._opened is not None
        here = found.st_dev, found.st_ino
        if self._opened is None:
            self._opened = here
        return here != self._opened


def read_url(url: str) -> SqliteFile:
    """The place that a URL names; raises InvalidUrl."""
    try:
        url.encode()
    except UnicodeEncodeError:
        raise InvalidUrl(f"{url!r:.200} holds bytes that are no UTF-8; {_SHAPE}") from None
    scheme, mark, rest = url.partition("://")
    if scheme != "sqlite" or not mark:
        raise InvalidUrl(f"{url!r:.200} is not the URL of a SQLite store; {_SHAPE}")
    if rest in (":memory:", "/:memory:"):
        return SqliteFile(None)
    if "?" in rest or "#" in rest:
        raise InvalidUrl(f"{_shown(url)!r:.200} has options, but a SQLite store takes none; {_SHAPE}")
    path = unquote(rest)
    if not path.startswith("/") or len(path) < 2 or "\0" in path or path.endswith("/"):
        raise InvalidUrl(f"{_shown(url)!r:.200} does not name a file; {_SHAPE}")
    return SqliteFile(os.path.abspath(path[1:]))


def _shown(url: str) -> str:
    """The URL without what may be a password: its author may have written it like the URL of a server."""
    before, at, rest = url.rpartition("@")
    return f"{before.partition('//')[0]}//…@{rest}" if at else url
