"""Records what SQLite writes and syncs, by a VFS between the very library that Python's sqlite3 uses and the system.

The VFS is a copy of SQLite's own for this system in which opening and deleting a file are ours, and of the methods of
each file writing, truncating and syncing: they take note and hand on. So the store runs as it always does, its settings
and its SQL in the library that users have. Where Python carries SQLite inside itself it cannot be reached.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

NAME = b"perdure recorder"
MAIN_DATABASE, JOURNAL, WAL = 0x100, 0x800, 0x80000
"""Flags of SQLite's xOpen: only these kinds of files are recorded, temporary ones are nobody's."""

_pointer, _int, _long = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
OPEN = ctypes.CFUNCTYPE(_int, _pointer, _pointer, _pointer, _int, _pointer)
DELETE = ctypes.CFUNCTYPE(_int, _pointer, ctypes.c_char_p, _int)
WRITE = ctypes.CFUNCTYPE(_int, _pointer, _pointer, _int, _long)
TRUNCATE = ctypes.CFUNCTYPE(_int, _pointer, _long)
SYNC = ctypes.CFUNCTYPE(_int, _pointer, _int)


class _Vfs(ctypes.Structure):
    _fields_ = [
        ("version", _int), ("file_size", _int), ("path_size", _int), ("next", _pointer), ("name", ctypes.c_char_p),
        ("data", _pointer), ("open", _pointer), ("delete", _pointer), ("others", _pointer * 14),
    ]  # fmt: skip


class _Methods(ctypes.Structure):
    _fields_ = [
        ("version", _int), ("close", _pointer), ("read", _pointer), ("write", _pointer), ("truncate", _pointer),
        ("sync", _pointer), ("others", _pointer * 13),
    ]  # fmt: skip


class Deed(StrEnum):
    """What was done to a file."""

    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    DELETE = "delete"


class Act(NamedTuple):
    """One deed: the file's name, where, and with which bytes; ``at`` of a truncation is the new size."""

    deed: Deed
    file: str
    at: int = 0
    data: bytes = b""


class Unreachable(RuntimeError):
    """Python's SQLite cannot be given a VFS from outside."""


class Recorder:
    """``acts`` is all that was done to the files of one folder, in order, with what others put between.

    ``room`` is how many bytes the files may still grow before the disk is full; None for as many as they like.
    """

    def __init__(self, folder: Path) -> None:
        self.acts: list[Any] = []
        self.room: int | None = None
        self._sizes: dict[str, int] = {}
        self._folder = str(folder)
        self._files: dict[int, str] = {}
        self._patched: dict[int, _Methods] = {}
        self._library = ctypes.CDLL(ctypes.util.find_library("sqlite3") or "libsqlite3.so.0")
        self._library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
        self._library.sqlite3_vfs_find.argtypes = [ctypes.c_char_p]
        self._library.sqlite3_vfs_register.argtypes = [ctypes.POINTER(_Vfs), _int]
        self._library.sqlite3_vfs_unregister.argtypes = [ctypes.POINTER(_Vfs)]
        self._system = self._library.sqlite3_vfs_find(None)
        self._own = _Vfs.from_buffer_copy(self._system.contents)
        self._own.name = NAME
        self._keep = [
            OPEN(self._open), DELETE(self._delete), WRITE(self._write), TRUNCATE(self._truncate), SYNC(self._sync)
        ]  # fmt: skip
        self._own.open, self._own.delete = (ctypes.cast(one, _pointer).value for one in self._keep[:2])

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Stand between SQLite and the system for connections that are opened now; raises Unreachable."""
        self._library.sqlite3_vfs_register(ctypes.byref(self._own), 1)
        try:
            probe = Path(self._folder) / "probe.db"
            with sqlite3.connect(probe) as connection:
                connection.execute("CREATE TABLE t (x)")
            connection.close()
            probe.unlink()
            if not self.acts:
                raise Unreachable("this Python carries a SQLite of its own, which no VFS can be given from outside")
            self.acts.clear()
            yield
        finally:
            self._library.sqlite3_vfs_unregister(ctypes.byref(self._own))

    # -- what SQLite calls; an error here would be printed and forgotten, so there is nothing that can fail -----------

    def _open(self, vfs: int, name: int | None, file: int, flags: int, out: int) -> int:
        code = OPEN(self._system.contents.open)(ctypes.addressof(self._system.contents), name, file, flags, out)
        path = ctypes.string_at(name).decode() if name else ""
        if code == 0 and flags & (MAIN_DATABASE | JOURNAL | WAL) and path.startswith(self._folder):
            self._files[file] = Path(path).name
            place = ctypes.cast(file, ctypes.POINTER(_pointer))
            original = place[0]
            assert original is not None
            if original not in self._patched:
                methods = _Methods.from_address(original)
                patched = _Methods.from_buffer_copy(methods)
                self._was = methods
                patched.write, patched.truncate, patched.sync = (
                    ctypes.cast(one, _pointer).value for one in self._keep[2:]
                )
                self._patched[original] = patched
            place[0] = ctypes.addressof(self._patched[original])
        return code

    def _delete(self, vfs: int, name: bytes, directory: int) -> int:
        if name.decode().startswith(self._folder):
            self.acts.append(Act(Deed.DELETE, Path(name.decode()).name))
        return DELETE(self._system.contents.delete)(ctypes.addressof(self._system.contents), name, directory)

    def _write(self, file: int, data: int, size: int, at: int) -> int:
        name = self._files[file]
        growth = max(0, at + size - self._sizes.get(name, 0))
        if self.room is not None:
            if growth > self.room:
                return sqlite3.SQLITE_FULL  # what SQLite's own VFS says when the system has no space
            self.room -= growth
        self._sizes[name] = self._sizes.get(name, 0) + growth
        self.acts.append(Act(Deed.WRITE, name, at, ctypes.string_at(data, size)))
        return WRITE(self._was.write)(file, data, size, at)

    def _truncate(self, file: int, size: int) -> int:
        self.acts.append(Act(Deed.TRUNCATE, self._files[file], size))
        return TRUNCATE(self._was.truncate)(file, size)

    def _sync(self, file: int, flags: int) -> int:
        self.acts.append(Act(Deed.SYNC, self._files[file]))
        return SYNC(self._was.sync)(file, flags)
