"""Where files can be kept in memory: the tests write thousands of them, and a disk that stalls looks like a defect."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MEMORY, ROOM_BYTES = Path("/dev/shm"), 4 * 1024**3
"""Where files are kept in memory on Linux, and how much must be free there to be used."""


def in_memory() -> Path | None:
    """A folder in memory with much room, if there is one."""
    roomy = MEMORY.is_dir() and os.access(MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES
    return MEMORY if roomy else None


def for_programs() -> Path | None:
    """The same, if programs that are written there may be run."""
    folder = in_memory()
    return None if folder is None or os.statvfs(folder).f_flag & os.ST_NOEXEC else folder
