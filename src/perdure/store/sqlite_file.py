"""Where a SQLite store lies: its URL read, its file, and the folder of its lock files."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote

from msgspec import Struct

from perdure.errors import InvalidUrl, StoreError, StoreTooOld

_SHAPE = "write sqlite:///shop.db, sqlite:////var/lib/shop.db or sqlite://:memory:"


class SqliteFile(Struct, frozen=True):
    """The place of one database; ``path`` is None for one in memory, which lives as long as its store object."""

    path: str | None

    @property
    def locks(self) -> Path | None:
        """The folder that holds one lock file per incarnation, beside the database."""
        return None if self.path is None else Path(self.path + "-workers")

    def prepare(self, *, create: bool) -> None:
        """Create an empty file that only this user can read, if there is none; raises StoreTooOld if it must not."""
        if self.path is None:
            return
        if not create and not os.path.exists(self.path):
            raise StoreTooOld(f"there is no database {self.path}; check the URL, or run `perdure migrate` to create it")
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except PermissionError:
            return  # an existing file may still be read; SQLite says by code what it may not do
        except OSError as error:
            raise StoreError(
                f"the database {self.path} cannot be opened ({error.strerror}); "
                "check that its folder exists and that the path names a file"
            ) from None


def read_url(url: str) -> SqliteFile:
    """The place that a URL names; raises InvalidUrl."""
    scheme, mark, rest = url.partition("://")
    if scheme != "sqlite" or not mark:
        raise InvalidUrl(f"{url!r} is not the URL of a SQLite store; {_SHAPE}")
    if rest in (":memory:", "/:memory:"):
        return SqliteFile(None)
    if "?" in rest or "#" in rest:
        raise InvalidUrl(f"{url!r} has options, but a SQLite store takes none; {_SHAPE}")
    path = unquote(rest)
    if not path.startswith("/") or len(path) < 2 or "\0" in path or path.endswith("/"):
        raise InvalidUrl(f"{url!r} does not name a file; {_SHAPE}")
    return SqliteFile(os.path.abspath(path[1:]))
