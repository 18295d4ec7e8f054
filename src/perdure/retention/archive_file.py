"""A file of archived processes: lines of JSON, compressed if its name says so; durable as a whole, or not there.

It is written under another name, synced, renamed, and its folder synced.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO, cast

from perdure.errors import InvalidInput

PLAIN, COMPRESSED = ".jsonl", ".jsonl.gz"
UNFINISHED = ".part"
"""How the name of a file ends, and begins with a dot, that is not finished: its writer may have died."""


class ArchiveFile:
    """Writes one file. All its methods block, and raise OSError; nothing is there before the first lines are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._aside = path.with_name(f".{path.name}{UNFINISHED}")
        self._raw: BinaryIO | None = None
        self._lines: IO[bytes] | None = None

    def write(self, lines: Iterable[bytes]) -> None:
        """Add lines, each with its end."""
        if self._lines is None:
            _make(self.path.parent)
            self._raw = self._aside.open("xb")
            self._lines = self._raw
            if self.path.name.endswith(COMPRESSED):
                self._lines = cast("IO[bytes]", gzip.GzipFile("", "wb", fileobj=self._raw, mtime=0))
        for line in lines:
            self._lines.write(line)

    def finish(self) -> None:
        """Make the file durable under its name; without lines there is none."""
        if self._raw is None or self._lines is None:
            return
        if self._lines is not self._raw:
            self._lines.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())
        self._raw.close()
        # If we die here the lines are in a file that counts as unfinished, and nothing was removed.
        self._aside.rename(self.path)
        _sync(self.path.parent)

    def discard(self) -> None:
        """Remove what was written, unless it was finished."""
        for one in (self._lines, self._raw):
            if one is not None:
                with suppress(OSError, ValueError):
                    one.close()
        with suppress(OSError):
            self._aside.unlink()


def files(path: str | Path) -> list[Path]:
    """The file with that path, or that folder's ``*.jsonl`` and ``*.jsonl.gz`` files, the newest first by their names.

    A process may stand in two archives: it was not removed after the first, and went on. So the first line counts that
    is found. Raises InvalidInput if there is no file.
    """
    given = Path(path)
    inside = [*given.glob(f"*{PLAIN}"), *given.glob(f"*{COMPRESSED}")]  # none unless it is a folder
    found = sorted(inside, reverse=True) or ([given] if given.exists() and not given.is_dir() else [])  # a pipe will do
    if not found:
        raise InvalidInput(
            f"{str(path)!r} is no file with processes, and no folder with *.jsonl files. "
            "Write one with `perdure export`, or correct the path"
        )
    return found


@contextmanager
def opened(path: str | Path) -> Iterator[BinaryIO]:
    """Read the lines of an archive or an export, compressed if its name ends in ``.gz``.

    Raises OSError, and InvalidInput if what is compressed is damaged.
    """
    place = Path(path)
    with gzip.open(place, "rb") if place.name.endswith(".gz") else place.open("rb") as lines:
        try:
            yield cast("BinaryIO", lines)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InvalidInput(f"{str(path)!r:.200} is damaged: {error}. Take the original file again") from None


def _make(folder: Path) -> None:
    """Make a folder, durably."""
    new = []
    place = folder.absolute()
    while not place.is_dir():
        new.append(place)
        place = place.parent
    folder.mkdir(parents=True, exist_ok=True)
    for one in new:
        _sync(one.parent)


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
