"""Incarnation locks: one file per incarnation beside the database, locked as long as its OS process lives (rule 12).

The system frees a lock when the OS process that opened the file dies, however it dies. A prober tries a shared lock on
the incarnation's file and frees it at once: probers do not disturb each other, and no worker ever waits for one. A
child OS process does not keep its parent's locks: the files are closed on exec, and after a fork.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover - a system without flock has only the beats
    fcntl = None  # type: ignore[assignment]

TRIES = 1_000
"""How often a new lock file is tried while probers are looking at it; after that the lock does not count."""

_everyones: weakref.WeakSet[IncarnationLocks] = weakref.WeakSet()


class IncarnationLocks:
    """The lock files of one database; it holds those of the incarnations enlisted here."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._held: dict[bytes, int] = {}
        _everyones.add(self)

    def take(self, worker: bytes) -> bool:
        """Hold the lock of an incarnation from now on; false where locks do not count."""
        if self._folder is None or fcntl is None:
            return False
        if worker in self._held:
            return True
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = _path(self._folder, worker)
        for _ in range(TRIES):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                # A sweep of another store probes the new file at this moment: it frees the file at once, or removes it.
                os.close(file)
                continue
            if _same_file(file, path):
                self._held[worker] = file
                return True
            os.close(file)
        return False

    def free(self, worker: bytes) -> bool:
        """Whether the lock of an incarnation is free: evidence of its death. A missing file is no evidence."""
        if self._folder is None or fcntl is None or worker in self._held:
            return False
        try:
            file = os.open(_path(self._folder, worker), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(file)
        return True

    def missing(self, worker: bytes) -> bool:
        """Whether the file of an incarnation is gone, as it is once somebody has ended this incarnation."""
        counts = self._folder is not None and fcntl is not None and worker not in self._held
        return counts and not _path(self._folder, worker).exists()  # type: ignore[arg-type]

    def remove(self, worker: bytes) -> None:
        """Remove the file of an incarnation that has ended, and let go of it if it was ours."""
        if self._folder is None:
            return
        _path(self._folder, worker).unlink(missing_ok=True)
        held = self._held.pop(worker, None)
        if held is not None:
            os.close(held)

    def sweep(self, living: set[bytes]) -> None:
        """Remove free files that belong to no living incarnation: deaths before enlisting leave them."""
        if self._folder is None or not self._folder.is_dir():
            return
        for path in self._folder.glob("*.lock"):
            try:
                worker = bytes.fromhex(path.stem)
            except ValueError:
                continue
            if worker not in living and self.free(worker):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of every lock; the files stay, so that probers find them free."""
        held, self._held = self._held, {}
        for file in held.values():
            os.close(file)


def _path(folder: Path, worker: bytes) -> Path:
    return folder / f"{worker.hex()}.lock"


def _same_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _forget_in_child() -> None:
    """After a fork: closing the child's copy leaves the parent's lock alone and frees it with the parent's death."""
    for locks in list(_everyones):
        locks.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
